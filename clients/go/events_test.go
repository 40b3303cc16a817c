package coxswain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	adminv1 "github.com/coxswain-dev/coxswain/clients/go/coxswain/admin/v1"
)

// past is an event so many seconds from now.
func past(sequence uint64, seconds int, message string) *adminv1.Event {
	at := timestamppb.New(time.Now().Add(time.Duration(seconds) * time.Second))
	return &adminv1.Event{Sequence: sequence, Time: at, Message: message}
}

// StreamEvents sends the past of the replica's log, and then the replica is lost.
func (m *member) StreamEvents(request *adminv1.StreamEventsRequest, stream grpc.ServerStreamingServer[adminv1.StreamEventsResponse]) error {
	log := fmt.Sprintf("log-%d", m.index)
	if slices.Equal(request.GetFilter().GetTypes(), []adminv1.EventType{adminv1.EventType_EVENT_TYPE_LEADERSHIP_CHANGED}) {
		return m.guard(stream)
	}
	m.fleet.mu.Lock()
	m.fleet.streams = append(m.fleet.streams, fmt.Sprintf("%d %q %d", m.index, request.GetLogId(), request.GetSinceSequence()))
	events := slices.Clone(m.fleet.events[m.index])
	m.fleet.mu.Unlock()
	if request.GetLogId() != "" && request.GetLogId() != log {
		refusal, err := status.New(codes.FailedPrecondition, "another log").WithDetails(
			&errdetails.ErrorInfo{Reason: eventLogChanged, Domain: errorDomain})
		if err != nil {
			return err
		}
		return refusal.Err()
	}
	started := &adminv1.StreamStarted{LogId: log}
	answers := []*adminv1.StreamEventsResponse{{Item: &adminv1.StreamEventsResponse_Started{Started: started}}}
	newest := uint64(0)
	for _, event := range events {
		newest = event.GetSequence()
		if newest <= request.GetSinceSequence() {
			continue
		}
		if event.GetMessage() == "dropped" {
			dropped := &adminv1.EventsDropped{Count: 1, FirstSequence: newest, LastSequence: newest}
			answers = append(answers, &adminv1.StreamEventsResponse{Item: &adminv1.StreamEventsResponse_Dropped{Dropped: dropped}})
			continue
		}
		answers = append(answers, &adminv1.StreamEventsResponse{Item: &adminv1.StreamEventsResponse_Event{Event: event}})
	}
	finished := &adminv1.ReplayFinished{Sequence: newest}
	answers = append(answers, &adminv1.StreamEventsResponse{Item: &adminv1.StreamEventsResponse_ReplayFinished{ReplayFinished: finished}})
	for _, answer := range answers {
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
	if request.GetReplayOnly() {
		return nil
	}
	if m.fleet.depose != nil {
		<-stream.Context().Done()
	}
	return status.Error(codes.Unavailable, "lost")
}

// guard streams the LeadershipChanged event of the first replica.
func (m *member) guard(stream grpc.ServerStreamingServer[adminv1.StreamEventsResponse]) error {
	if m.index == 0 {
		m.fleet.depose()
		event := past(90, 0, "another replica leads")
		event.Details = &adminv1.Event_LeadershipChanged{LeadershipChanged: &adminv1.LeadershipChanged{Holder: "b"}}
		if err := stream.Send(&adminv1.StreamEventsResponse{Item: &adminv1.StreamEventsResponse_Event{Event: event}}); err != nil {
			return err
		}
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

// followed follows events until a replay is the last one, after each of which next runs, and returns the messages of the events.
func (f *fleet) followed(t *testing.T, request *adminv1.StreamEventsRequest, next func(replays int) (more bool)) ([]string, error) {
	t.Helper()
	follower := f.follow(t)
	follower.pause = func(context.Context, time.Duration) error { return nil }
	given, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	enough := errors.New("enough")
	var shown []string
	replays := 0
	err := follower.FollowEvents(given, request, func(answer *adminv1.StreamEventsResponse) error {
		if event := answer.GetEvent(); event != nil {
			shown = append(shown, event.GetMessage())
		}
		if answer.GetReplayFinished() == nil {
			return nil
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if replays++; next(replays) {
			return nil
		}
		return enough
	})
	if errors.Is(err, enough) {
		return shown, nil
	}
	return shown, err
}

func TestEventsOfALogThatTheCallerNamesEndWithAnErrorAtAnotherReplica(t *testing.T) {
	fleet := newFleet(t, 2)
	fleet.leader = 1
	fleet.events = map[int][]*adminv1.Event{0: {past(500, -60, "a"), past(501, -50, "b")}, 1: {past(1, -40, "c"), past(2, 9, "d")}}
	request := &adminv1.StreamEventsRequest{LogId: "log-0", Start: &adminv1.StreamEventsRequest_SinceSequence{SinceSequence: 500}}
	shown, err := fleet.followed(t, request, func(int) bool { return false })
	if status.Code(err) != codes.FailedPrecondition || !hasReason(err, eventLogChanged) || len(shown) != 0 {
		t.Errorf("%v, shown: %q", err, shown)
	}
	if expected := []string{`1 "log-0" 500`}; !slices.Equal(fleet.streams, expected) {
		t.Errorf("streams: %q", fleet.streams)
	}
	// The follower goes on by itself once it has followed that log.
	fleet.leader = 0
	shown, err = fleet.followed(t, request, func(replays int) bool {
		fleet.leader = 1
		return replays < 2
	})
	if expected := []string{"b", "c", "d"}; err != nil || !slices.Equal(shown, expected) {
		t.Errorf("%v, shown: %q", err, shown)
	}
}

func TestEventsWithoutLeadershipChangedAreFollowedWhenTheReplicaIsDeposed(t *testing.T) {
	for name, filter := range map[string]*adminv1.EventFilter{
		"controllers": {Controllers: []string{"job-controller"}},
		"namespaces":  {Namespaces: []string{"default"}},
		"objects":     {Objects: []*adminv1.ObjectReference{{Name: "web"}}},
		"types":       {Types: []adminv1.EventType{adminv1.EventType_EVENT_TYPE_API_WRITE}},
		"severity":    {MinSeverity: adminv1.Severity_SEVERITY_WARNING},
	} {
		t.Run(name, func(t *testing.T) {
			fleet := newFleet(t, 2)
			fleet.events = map[int][]*adminv1.Event{0: {past(1, 1, "a")}, 1: {past(7, -70, "of before"), past(8, 9, "c")}}
			replayed := make(chan struct{})
			fleet.depose = func() {
				<-replayed
				fleet.mu.Lock()
				defer fleet.mu.Unlock()
				// The stream does not have this one yet.
				fleet.events[0] = append(fleet.events[0], past(2, 2, "b"))
				fleet.leader = 1
			}
			shown, err := fleet.followed(t, &adminv1.StreamEventsRequest{Filter: filter}, func(replays int) bool {
				if replays == 1 {
					close(replayed)
				}
				return replays < 3
			})
			if expected := []string{"a", "b", "c"}; err != nil || !slices.Equal(shown, expected) {
				t.Errorf("%v, shown: %q", err, shown)
			}
			if expected := []string{`0 "" 0`, `0 "log-0" 1`, `1 "log-0" 2`, `1 "" 0`}; !slices.Equal(fleet.streams, expected) {
				t.Errorf("streams: %q", fleet.streams)
			}
		})
	}
}

func TestEventsOfALeaderWhoseClockIsBehindAreShownOnce(t *testing.T) {
	fleet := newFleet(t, 2)
	fleet.events = map[int][]*adminv1.Event{0: {past(1, 70, "a")}, 1: {past(1, 9, "61 seconds"), past(2, 11, "59 seconds")}}
	shown, err := fleet.followed(t, &adminv1.StreamEventsRequest{}, func(replays int) bool {
		fleet.leader = replays % 2
		if replays == 2 {
			fleet.events[0] = append(fleet.events[0], past(2, 71, "b"))
		}
		return replays < 4
	})
	if expected := []string{"a", "59 seconds", "b"}; err != nil || !slices.Equal(shown, expected) {
		t.Errorf("%v, shown: %q", err, shown)
	}
}

func TestEventsAreFollowedAcrossAFailover(t *testing.T) {
	fleet := newFleet(t, 2)
	fleet.events = map[int][]*adminv1.Event{0: {past(1, 1, "a"), past(2, 2, "b")}}
	follower := fleet.follow(t)
	follower.pause = func(context.Context, time.Duration) error { return nil }
	enough := errors.New("enough")
	var shown []string
	replays := 0
	err := follower.FollowEvents(t.Context(), &adminv1.StreamEventsRequest{}, func(answer *adminv1.StreamEventsResponse) error {
		if event := answer.GetEvent(); event != nil {
			shown = append(shown, event.GetMessage())
		}
		if dropped := answer.GetDropped(); dropped != nil {
			shown = append(shown, fmt.Sprintf("%d dropped", dropped.GetCount()))
		}
		if answer.GetReplayFinished() == nil {
			return nil
		}
		fleet.mu.Lock()
		defer fleet.mu.Unlock()
		switch replays++; replays {
		case 1:
			fleet.events[0] = append(fleet.events[0], past(3, 3, "dropped"), past(4, 4, "c"))
		case 2:
			fleet.leader = 1
			fleet.events[1] = []*adminv1.Event{past(7, -70, "of before"), past(8, 9, "d")}
		default:
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Fatal(err)
	}
	if expected := []string{"a", "b", "1 dropped", "c", "d"}; !slices.Equal(shown, expected) {
		t.Errorf("shown: %q", shown)
	}
	if expected := []string{`0 "" 0`, `0 "log-0" 2`, `1 "log-0" 4`, `1 "" 0`}; !slices.Equal(fleet.streams, expected) {
		t.Errorf("streams: %q", fleet.streams)
	}
}

func TestAStreamOfEventsEndsWithAnErrorThatNoOtherReplicaChanges(t *testing.T) {
	fleet := newFleet(t, 1)
	follower := fleet.follow(t)
	given, cancel := context.WithCancel(t.Context())
	cancel()
	err := follower.FollowEvents(given, &adminv1.StreamEventsRequest{}, func(*adminv1.StreamEventsResponse) error { return nil })
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	// Each stream is lost before it has sent anything.
	fleet.lead(-1, false)
	fleet.addresses = nil
	follower.Attempts = 3
	follower.pause = func(context.Context, time.Duration) error { return nil }
	err = follower.FollowEvents(t.Context(), &adminv1.StreamEventsRequest{}, func(*adminv1.StreamEventsResponse) error { return nil })
	if !errors.Is(err, ErrNoLeader) {
		t.Error(err)
	}
}
