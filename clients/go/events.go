package coxswain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	adminv1 "github.com/coxswain-dev/coxswain/clients/go/coxswain/admin/v1"
)

// eventLogChanged is the reason of a replica that refuses to resume a stream: its log is not the one that was asked for.
const eventLogChanged = "EVENT_LOG_CHANGED"

// FollowEvents streams events of the leader, and calls show with each answer until show returns an error, which it returns. When
// the stream ends with its replica, its connection or its age, or when a LeadershipChanged event shows that the replica no longer
// leads, the stream resumes at the leader: in the same log after the last event, and in the log of another replica with the events
// there that are newer than the last one. Each stream begins with a Started answer, and Dropped answers tell of gaps. Other errors
// are returned as they are; ErrNoLeader when no replica resumes the stream. With ReplayOnly it returns nil after the past.
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

// showEvents opens one stream and shows its answers; received is whether any came.
func (f *Follower) showEvents(ctx context.Context, position *eventPosition, show func(*adminv1.StreamEventsResponse) error) (received bool, err error) {
	search, found := context.WithTimeout(ctx, cmp.Or(f.Timeout, defaultTimeout))
	session, err := f.enter(search, "")
	found()
	if err != nil {
		return false, err
	}
	defer f.leave(session)
	ctx, end := context.WithCancel(ctx)
	defer end()
	stream, err := session.client.Events.StreamEvents(ctx, position.next())
	for err == nil {
		var answer *adminv1.StreamEventsResponse
		if answer, err = stream.Recv(); err != nil {
			break
		}
		received = true
		if !position.take(answer) {
			continue
		}
		if err := show(answer); err != nil {
			return received, err
		}
		if moved := answer.GetEvent().GetLeadershipChanged(); moved != nil && !moved.GetLeading() && !position.replaying {
			f.retire(session)
			return received, &lostStreamError{errors.New("the replica no longer leads")}
		}
	}
	switch {
	case errors.Is(err, io.EOF) && position.request.GetReplayOnly():
		return received, nil
	case hasReason(err, eventLogChanged):
		position.forgetLog()
	case errors.Is(err, io.EOF) || isLost(err):
		f.retire(session)
	default:
		return received, err
	}
	return received, &lostStreamError{err}
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
	// latest is when the newest event took place that was shown.
	latest time.Time
	// replaying is whether the past is being sent, and catchingUp whether it is that of another replica.
	replaying, catchingUp bool
}

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

// forgetLog has the next stream begin with all that the log of another replica has.
func (p *eventPosition) forgetLog() {
	p.logID, p.sequence, p.isKnown, p.catchingUp = "", 0, true, true
}

// take takes note of an answer, and tells whether it is to be shown.
func (p *eventPosition) take(answer *adminv1.StreamEventsResponse) bool {
	switch item := answer.GetItem().(type) {
	case *adminv1.StreamEventsResponse_Started:
		if p.logID != item.Started.GetLogId() {
			p.logID, p.sequence = item.Started.GetLogId(), 0
		}
	case *adminv1.StreamEventsResponse_Event:
		p.goOnTo(item.Event.GetSequence())
		at := item.Event.GetTime().AsTime()
		if p.catchingUp && at.Before(p.latest) {
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
