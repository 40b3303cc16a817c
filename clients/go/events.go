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

// eventLogChanged is the error reason if the requested log is not the replica's log.
const eventLogChanged = "EVENT_LOG_CHANGED"

const (
	// clockOffset bounds the supported offset between the clocks of two replicas. The alert CoxswainClockOffset allows each replica
	// 30 seconds from the clock of the API server.
	clockOffset = 60 * time.Second
	// maxFormerLogs is the maximum number of logs of former leaders in a position.
	maxFormerLogs = 16
)

// errDeposed is the error of a stream whose replica no longer leads.
var errDeposed = errors.New("the replica no longer leads")

// FollowEvents streams events of the leader and calls show with each response. It returns the error of show.
//
// FollowEvents resumes the stream at the leader when the replica stops, the connection is lost, the stream reaches its
// maximum age, or a LeadershipChanged event shows that the replica no longer leads. In the same log, the stream resumes
// after the last event. In the log of another replica, it resumes with the newer events. Because the clocks of two
// replicas may differ, these include events that are up to 60 seconds older than the last one. Each stream starts with
// a Started response, and Dropped responses report gaps.
//
// If the filter excludes LeadershipChanged events, a second stream reads them, and show does not get them.
//
// FollowEvents returns other errors unchanged, including EVENT_LOG_CHANGED: the leader does not have the log of the
// request's LogId, so the events since then are lost. In this case, call FollowEvents again without LogId, and with
// SinceSequence 0 for all events in the leader's log. FollowEvents returns ErrNoLeader if no replica resumes the stream.
// With ReplayOnly, it returns nil after the past events.
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

// lostStreamError is the error of a stream that another stream can resume.
type lostStreamError struct{ cause error }

func (e *lostStreamError) Error() string {
	return "coxswain: the event stream was lost: " + e.cause.Error()
}

func (e *lostStreamError) Unwrap() error { return e.cause }

// showEvents opens one stream at the leader and shows its responses; received is true after the first response.
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

// relayGuarded relays one stream, and ends it with errDeposed when the replica no longer leads, regardless of the filter.
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
		// The guard may be ahead of the stream, so the rest of the log is read. An error there is ignored: the next leader
		// follows.
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

// relay shows the responses of one stream. The result stopped is the error of show, and err is the error of the stream.
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

// isDeposed returns true if a response shows that its replica does not lead.
func isDeposed(answer *adminv1.StreamEventsResponse) bool {
	changed := answer.GetEvent().GetLeadershipChanged()
	return changed != nil && !changed.GetLeading()
}

// isLost returns true if a stream ended because its replica stopped or its connection was lost.
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

// eventPosition is the position up to which events were shown.
type eventPosition struct {
	request *adminv1.StreamEventsRequest
	// logID and sequence are those of the last event; isKnown is true after the first event.
	logID    string
	sequence uint64
	isKnown  bool
	// former are the logs of former leaders, oldest first; shown is the last sequence number that was shown of this log.
	former []formerLog
	shown  uint64
	// latest is the time of the last shown event. Events before oldest are hidden while catching up.
	latest, oldest time.Time
	// replaying is true during the past events, and catchingUp is true if they are those of another replica.
	replaying, catchingUp bool
}

// formerLog is the position in the log of a former leader.
type formerLog struct {
	id       string
	sequence uint64
}

// isCallers returns true if the next stream starts at the position of the caller's request.
func (p *eventPosition) isCallers() bool { return !p.isKnown }

// next returns the request that resumes the stream from this position.
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

// rest returns the request for the remaining events in the replica's log, without new events.
func (p *eventPosition) rest() *adminv1.StreamEventsRequest {
	rest := p.next()
	rest.ReplayOnly = true
	return rest
}

// leavesLeadershipOut returns true if the filter excludes LeadershipChanged events, which have no controller, no object and
// severity INFO.
func (p *eventPosition) leavesLeadershipOut() bool {
	filter := p.request.GetFilter()
	types := filter.GetTypes()
	leavesOut := len(filter.GetControllers()) > 0 || len(filter.GetNamespaces()) > 0 || len(filter.GetObjects()) > 0 ||
		filter.GetMinSeverity() > adminv1.Severity_SEVERITY_INFO ||
		len(types) > 0 && !slices.Contains(types, adminv1.EventType_EVENT_TYPE_LEADERSHIP_CHANGED)
	return leavesOut && !p.request.GetReplayOnly()
}

// forgetLog makes the next stream start with all events in the log of another replica.
func (p *eventPosition) forgetLog() {
	p.former = slices.DeleteFunc(p.former, func(log formerLog) bool { return log.id == p.logID })
	p.former = append(p.former, formerLog{p.logID, p.sequence})
	p.former = p.former[max(len(p.former)-maxFormerLogs, 0):]
	p.logID, p.sequence, p.isKnown, p.catchingUp = "", 0, true, true
	p.oldest = p.latest.Add(-clockOffset)
}

// take updates the position by a response, and returns true if the response is to be shown.
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
