// Command scenario runs against a live manager what the clients in the other languages run as well: who leads, list,
// follow the leader, disable for some seconds, watch it come back, and the events of it all. With an API server, the
// leader is found by its Lease.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	coxswain "github.com/coxswain-dev/coxswain/clients/go"
	adminv1 "github.com/coxswain-dev/coxswain/clients/go/coxswain/admin/v1"
)

const reason = "the scenario of the Go client"

func main() {
	log.SetFlags(0)
	log.SetPrefix("go scenario: ")
	if len(os.Args) < 4 || len(os.Args) > 6 {
		log.Fatal("usage: scenario ADDRESS CA_FILE TOKEN_FILE [CONTROLLER [API_SERVER]]")
	}
	name, server := "deployment-controller", ""
	if len(os.Args) > 4 {
		name = os.Args[4]
	}
	if len(os.Args) > 5 {
		server = os.Args[5]
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if err := run(ctx, os.Args[1], server, coxswain.Options{CAFile: os.Args[2], TokenFile: os.Args[3]}, name); err != nil {
		log.Fatal(err)
	}
	fmt.Println("go scenario: ok")
}

func run(ctx context.Context, address, server string, options coxswain.Options, name string) error {
	client, err := coxswain.Connect(address, options)
	if err != nil {
		return err
	}
	defer client.Close()
	follow := func(ctx context.Context, _ *coxswain.Client, name string) error {
		return follow(ctx, address, server, options, name)
	}
	for _, step := range []struct {
		name string
		run  func(context.Context, *coxswain.Client, string) error
	}{
		{"leader", leader}, {"list", list}, {"an unknown name", unknown}, {"follow the leader", follow},
		{"disable, watch, stream", toggle},
	} {
		if err := step.run(ctx, client, name); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		fmt.Printf("go scenario: %s: ok\n", step.name)
	}
	return nil
}

func leader(ctx context.Context, client *coxswain.Client, _ string) error {
	answer, err := client.Leader.GetLeader(ctx, &adminv1.GetLeaderRequest{})
	if err != nil {
		return err
	}
	if leader := answer.GetLeader(); leader.GetHolderIdentity() == "" || !leader.GetLeading() {
		return fmt.Errorf("the replica called should lead: %v", leader)
	}
	return nil
}

func list(ctx context.Context, client *coxswain.Client, name string) error {
	found, total, token := 0, int32(0), ""
	seen := false
	for {
		page, err := client.Controllers.ListControllers(ctx, &adminv1.ListControllersRequest{PageSize: 10, PageToken: token})
		if err != nil {
			return err
		}
		for _, controller := range page.GetControllers() {
			seen = seen || controller.GetName() == name
		}
		found, total, token = found+len(page.GetControllers()), page.GetTotalSize(), page.GetNextPageToken()
		if token == "" {
			break
		}
	}
	if !seen || found != int(total) || found < 40 {
		return fmt.Errorf("%d controllers of %d, %s among them: %t", found, total, name, seen)
	}
	return nil
}

func unknown(ctx context.Context, client *coxswain.Client, name string) error {
	_, err := client.Controllers.GetController(ctx, &adminv1.GetControllerRequest{Name: name + "x"})
	if status.Code(err) != codes.NotFound || !strings.Contains(status.Convert(err).Message(), name) {
		return fmt.Errorf("NOT_FOUND that names %s was expected: %w", name, err)
	}
	return nil
}

func follow(ctx context.Context, address, server string, options coxswain.Options, name string) error {
	finder := coxswain.Finder{Options: options, Addresses: []string{address}}
	if server != "" {
		leases, err := coxswain.NewAPIServer(server, options)
		if err != nil {
			return err
		}
		finder.Leases, finder.Addresses = leases, nil
		found, err := finder.Replicas(ctx)
		if err != nil {
			return err
		}
		if len(found.Candidates) != 1 || !found.Candidates[0].Leads || found.Candidates[0].Identity != found.Holder {
			return fmt.Errorf("one replica that leads was expected: %+v", found)
		}
	}
	follower, err := coxswain.Follow(finder)
	if err != nil {
		return err
	}
	defer follower.Close()
	return follower.Call(ctx, func(ctx context.Context, leader *coxswain.Client) error {
		queues, err := leader.Queues.ListQueues(ctx, &adminv1.ListQueuesRequest{
			Filter: &adminv1.QueueFilter{Controllers: []string{name}},
		})
		if err != nil {
			return err
		}
		if len(queues.GetQueues()) == 0 {
			return fmt.Errorf("%s should have a queue", name)
		}
		// Only the leader answers this. Both are questions, so it is no matter that a second run asks both again.
		_, err = leader.Queues.GetQueue(ctx, &adminv1.GetQueueRequest{Name: queues.GetQueues()[0].GetName()})
		return err
	})
}

func toggle(ctx context.Context, client *coxswain.Client, name string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch, err := client.Controllers.WatchControllers(ctx, &adminv1.WatchControllersRequest{
		Filter: &adminv1.ControllerFilter{Names: []string{name}},
	})
	if err != nil {
		return err
	}
	if first, err := watch.Recv(); err != nil || len(first.GetSnapshot().GetControllers()) != 1 {
		return fmt.Errorf("a snapshot of one controller was expected: %v, %w", first, err)
	}
	events, err := client.Events.StreamEvents(ctx, &adminv1.StreamEventsRequest{
		Filter: &adminv1.EventFilter{
			Controllers: []string{name},
			Types:       []adminv1.EventType{adminv1.EventType_EVENT_TYPE_PHASE_CHANGED},
		},
	})
	if err != nil {
		return err
	}
	if first, err := events.Recv(); err != nil || first.GetStarted().GetLogId() == "" {
		return fmt.Errorf("the start of the stream was expected: %v, %w", first, err)
	}

	disabled, err := client.Controllers.DisableController(ctx, &adminv1.DisableControllerRequest{
		Name: name, Reason: reason, Duration: durationpb.New(3 * time.Second), Wait: true,
	})
	if err != nil {
		return err
	}
	controller := disabled.GetControllers()[0]
	order := controller.GetDesired().GetOverride()
	if controller.GetPhase() != adminv1.Phase_PHASE_DISABLED || order.GetReason() != reason || order.GetExpireTime() == nil {
		return fmt.Errorf("it should be disabled for a while: %v", controller)
	}

	if err := comesBack(watch.Recv); err != nil {
		return err
	}
	seen := map[adminv1.Phase]bool{}
	for !seen[adminv1.Phase_PHASE_DISABLED] || !seen[adminv1.Phase_PHASE_RUNNING] {
		item, err := events.Recv()
		if err != nil {
			return fmt.Errorf("phases seen: %v: %w", seen, err)
		}
		if changed := item.GetEvent().GetPhaseChanged(); changed != nil {
			seen[changed.GetCurrent()] = true
		}
	}
	return nil
}

// comesBack returns when the watch has seen the controller stopped, and running again because the flags say so.
func comesBack(next func() (*adminv1.WatchControllersResponse, error)) error {
	stopped := false
	for {
		update, err := next()
		if errors.Is(err, io.EOF) {
			return errors.New("the watch ended")
		}
		if err != nil {
			return err
		}
		controller := update.GetChanged()
		switch {
		case controller.GetPhase() == adminv1.Phase_PHASE_DISABLED:
			stopped = true
		case stopped && controller.GetPhase() == adminv1.Phase_PHASE_RUNNING:
			if controller.GetDesired().GetSource() == adminv1.DesiredSource_DESIRED_SOURCE_OVERRIDE {
				return fmt.Errorf("the override should have ended: %v", controller)
			}
			return nil
		}
	}
}
