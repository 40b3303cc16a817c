package coxswain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	adminv1 "github.com/coxswain-dev/coxswain/clients/go/coxswain/admin/v1"
)

// eventLogChanged is the reason of a replica that refuses to resume a stream: its log is not the one that was asked for.
const eventLogChanged = "EVENT_LOG_CHANGED"

const (
	// clockOffset bounds the supported offset between the clocks of two replicas. The alert CoxswainClockOffset allows each replica
	// 30 seconds from the clock of the API server.
	clockOffset = 60 * time.Second
	// maxFormerLogs bounds how many logs of former leaders a position remembers.
	maxFormerLogs = 16
)

// errDeposed is that the replica of a stream no longer leads.
var errDeposed = errors.New("the replica no longer leads")

// FollowEvents streams events of the leader, and calls show with each answer until show returns an error, which it returns. When
// the stream ends with its replica, its connection or its age, or when a LeadershipChanged event shows that the replica no longer
// leads, the stream resumes at the leader: in the same log after the last event, and in the log of another replica with the events
// there that are newer than the last one. The clocks of two replicas may differ, so events of another replica are shown that are up
// to 60 seconds older than the last one. Each stream begins with a Started answer, and Dropped answers tell of gaps.
//
// If the filter leaves LeadershipChanged out, a second stream reads these events, and show does not get them.
//
// Other errors are returned as they are, EVENT_LOG_CHANGED among them: it means that the request has the LogId of a log that the
// leader does not have. The events since then are in no log of the leader: call FollowEvents again without LogId, with SinceSequence 0
// for all that the leader has. The error is ErrNoLeader when no replica resumes the stream. With ReplayOnly it returns nil after the
// past.
func (f *Follower) FollowEvents(ctx context.Context, request *adminv1.StreamEventsRequest, show func(*adminv1.StreamEventsResponse) error) error {
	position := &eventPosition{request: proto.CloneOf(request), latest: time.Now()}
	attempts, attempt, wait := cmp.Or(f.Attempts, defaultAttempts), 0, firstPause
	for {
		received, err := f.showEvents(ctx, position, show)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var lost *lostStreamError
		var unreachable *unreachableError
		if !errors.As(err, &lost) && !errors.As(err, &unreachable) {
			return err
		}
		if received {
			attempt, wait = 0, firstPause
		}
		if attempt++; attempt >= attempts {
			return fmt.Errorf("%w in %d attempts: %w", ErrNoLeader, attempt, err)
		}
		if stopped := f.pause(ctx, wait); stopped != nil {
			return fmt.Errorf("%w after %d attempts, and then %w: %w", ErrNoLeader, attempt, stopped, err)
		}
		wait = min(2*wait, longestPause)
	}
}

// lostStreamError is that a stream ended although another one may go on.
type lostStreamError struct{ cause error }

func (e *lostStreamError) Error() string {
	return "coxswain: the stream of events was lost: " + e.cause.Error()
}

func (e *lostStreamError) Unwrap() error { return e.cause }

// showEvents opens one stream at the leader and shows its answers; received is whether any came.
func (f *Follower) showEvents(ctx context.Context, position *eventPosition, show func(*adminv1.StreamEventsResponse) error) (received bool, err error) {
	search, found := context.WithTimeout(ctx, cmp.Or(f.Timeout, defaultTimeout))
	session, err := f.enter(search, "")
	found()
	if err != nil {
		return false, err
	}
	defer f.leave(session)
	received, stopped, err := relayGuarded(ctx, session.client, position, show)
	switch {
	case stopped != nil:
		return received, stopped
	case errors.Is(err, errDeposed):
		f.retire(session)
	case errors.Is(err, io.EOF) && position.request.GetReplayOnly():
		return received, nil
	case hasReason(err, eventLogChanged) && !position.isCallers():
		position.forgetLog()
	case errors.Is(err, io.EOF) || isLost(err):
		f.retire(session)
	default:
		return received, err
	}
	return received, &lostStreamError{err}
}

// relayGuarded relays one stream, and ends it with errDeposed when the replica no longer leads, whatever the filter leaves out.
func relayGuarded(
	ctx context.Context, client *Client, position *eventPosition, show func(*adminv1.StreamEventsResponse) error,
) (received bool, stopped, err error) {
	if !position.leavesLeadershipOut() {
		return relay(ctx, client, position, position.next(), show)
	}
	guarded, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() { end(waitUntilDeposed(guarded, client)) }()
	received, stopped, err = relay(guarded, client, position, position.next(), show)
	if stopped != nil || ctx.Err() != nil || guarded.Err() == nil {
		return received, stopped, err
	}
	err = context.Cause(guarded)
	if errors.Is(err, errDeposed) {
		// The guard may be ahead of the stream. Whatever ends the rest early, the next leader is due.
		more, stopped, _ := relay(ctx, client, position, position.rest(), show)
		return received || more, stopped, err
	}
	return received, nil, err
}

// waitUntilDeposed returns errDeposed when the replica reports that it does not lead, or the error that ends its stream.
func waitUntilDeposed(ctx context.Context, client *Client) error {
	stream, err := client.Events.StreamEvents(ctx, &adminv1.StreamEventsRequest{
		Filter: &adminv1.EventFilter{Types: []adminv1.EventType{adminv1.EventType_EVENT_TYPE_LEADERSHIP_CHANGED}},
	})
	for err == nil {
		var answer *adminv1.StreamEventsResponse
		if answer, err = stream.Recv(); err == nil && isDeposed(answer) {
			return errDeposed
		}
	}
	return err
}

// relay shows the answers of one stream. The error of show is stopped, and err is that of the stream.
func relay(
	ctx context.Context, client *Client, position *eventPosition, request *adminv1.StreamEventsRequest,
	show func(*adminv1.StreamEventsResponse) error,
) (received bool, stopped, err error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	stream, err := client.Events.StreamEvents(ctx, request)
	for err == nil {
		var answer *adminv1.StreamEventsResponse
		if answer, err = stream.Recv(); err != nil {
			break
		}
		received = true
		if !position.take(answer) {
			continue
		}
		if stopped := show(answer); stopped != nil {
			return received, stopped, nil
		}
		if isDeposed(answer) && !position.replaying {
			return received, nil, errDeposed
		}
	}
	return received, nil, err
}

// isDeposed is whether an answer shows that its replica does not lead.
func isDeposed(answer *adminv1.StreamEventsResponse) bool {
	changed := answer.GetEvent().GetLeadershipChanged()
	return changed != nil && !changed.GetLeading()
}

// isLost is whether a stream ended with its replica or its connection.
func isLost(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.Unknown, codes.Internal, codes.Canceled:
		return true
	default:
		return false
	}
}

func hasReason(err error, reason string) bool {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetReason() == reason && info.GetDomain() == errorDomain {
			return true
		}
	}
	return false
}

// eventPosition is how far events have been shown.
type eventPosition struct {
	request *adminv1.StreamEventsRequest
	// logID and sequence are those of the last event; isKnown is whether there was one.
	logID    string
	sequence uint64
	isKnown  bool
	// former are the logs that were followed before, the oldest first, and shown is how far this log was followed then.
	former []formerLog
	shown  uint64
	// latest is the time of the event that was shown last. Events before oldest are hidden while catching up.
	latest, oldest time.Time
	// replaying is whether the past is being sent, and catchingUp whether it is that of another replica.
	replaying, catchingUp bool
}

// formerLog is how far the log of a former leader has been followed.
type formerLog struct {
	id       string
	sequence uint64
}

// isCallers is whether the next stream begins where the caller's request does, in the caller's log if it names one.
func (p *eventPosition) isCallers() bool { return !p.isKnown }

// next is the request of the stream that goes on from here.
func (p *eventPosition) next() *adminv1.StreamEventsRequest {
	p.replaying = true
	next := proto.CloneOf(p.request)
	if next == nil {
		next = &adminv1.StreamEventsRequest{}
	}
	if p.isKnown {
		next.LogId = p.logID
		next.Start = &adminv1.StreamEventsRequest_SinceSequence{SinceSequence: p.sequence}
	}
	return next
}

// rest is the request for what the replica's log has from here on, without waiting for more.
func (p *eventPosition) rest() *adminv1.StreamEventsRequest {
	rest := p.next()
	rest.ReplayOnly = true
	return rest
}

// leavesLeadershipOut is whether the stream goes on without LeadershipChanged events: these are about no controller and no object,
// and of severity INFO.
func (p *eventPosition) leavesLeadershipOut() bool {
	filter := p.request.GetFilter()
	types := filter.GetTypes()
	leavesOut := len(filter.GetControllers()) > 0 || len(filter.GetNamespaces()) > 0 || len(filter.GetObjects()) > 0 ||
		filter.GetMinSeverity() > adminv1.Severity_SEVERITY_INFO ||
		len(types) > 0 && !slices.Contains(types, adminv1.EventType_EVENT_TYPE_LEADERSHIP_CHANGED)
	return leavesOut && !p.request.GetReplayOnly()
}

// forgetLog has the next stream begin with all that the log of another replica has.
func (p *eventPosition) forgetLog() {
	p.former = slices.DeleteFunc(p.former, func(log formerLog) bool { return log.id == p.logID })
	p.former = append(p.former, formerLog{p.logID, p.sequence})
	p.former = p.former[max(len(p.former)-maxFormerLogs, 0):]
	p.logID, p.sequence, p.isKnown, p.catchingUp = "", 0, true, true
	p.oldest = p.latest.Add(-clockOffset)
}

// take takes note of an answer, and tells whether it is to be shown.
func (p *eventPosition) take(answer *adminv1.StreamEventsResponse) bool {
	switch item := answer.GetItem().(type) {
	case *adminv1.StreamEventsResponse_Started:
		if p.logID != item.Started.GetLogId() {
			p.logID, p.sequence, p.shown = item.Started.GetLogId(), 0, 0
			for _, log := range p.former {
				if log.id == p.logID {
					p.shown = log.sequence
				}
			}
		}
	case *adminv1.StreamEventsResponse_Event:
		p.goOnTo(item.Event.GetSequence())
		at := item.Event.GetTime().AsTime()
		if p.catchingUp && (item.Event.GetSequence() <= p.shown || at.Before(p.oldest)) {
			return false
		}
		p.latest = at
	case *adminv1.StreamEventsResponse_Dropped:
		p.goOnTo(item.Dropped.GetLastSequence())
	case *adminv1.StreamEventsResponse_ReplayFinished:
		p.goOnTo(item.ReplayFinished.GetSequence())
		p.replaying, p.catchingUp = false, false
	}
	return true
}

func (p *eventPosition) goOnTo(sequence uint64) {
	p.sequence, p.isKnown = max(p.sequence, sequence), true
}
