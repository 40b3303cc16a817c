package coxswain

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	adminv1 "github.com/coxswain-dev/coxswain/clients/go/coxswain/admin/v1"
)

// fleet are replicas on loopback, one of which leads.
type fleet struct {
	authority certificates

	mu sync.Mutex
	// leader is the index of who leads, or -1; known is whether the others know where.
	leader int
	known  bool
	// addresses are those of the replicas.
	addresses []string
	// listed counts how often the Leases were read, calls are the replicas that were asked to reconcile.
	listed int
	calls  []int
	// announced is the authority that their Leases announce.
	announced string
	// fails is what the leader answers in place of an answer.
	fails error
	// expected are the leaders that requests to step down were for; moves is how far leadership moves before such a request.
	expected []string
	moves    int
	// events are the logs of the replicas, and streams what was asked of them.
	events  map[int][]*adminv1.Event
	streams []string
	// depose, if set, takes leadership from the first replica, which reports it to readers of LeadershipChanged. Streams do not end then.
	depose func()
}

// member is one of them.
type member struct {
	adminv1.UnimplementedEventServiceServer
	adminv1.UnimplementedLeaderServiceServer
	adminv1.UnimplementedQueueServiceServer
	fleet *fleet
	index int
}

func newFleet(t *testing.T, size int) *fleet {
	t.Helper()
	fleet := &fleet{authority: newAuthority(t, "authority"), known: true}
	for index := range size {
		pair, _, _ := fleet.authority.issue(t, "replica")
		server := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&pair)))
		member := &member{fleet: fleet, index: index}
		adminv1.RegisterEventServiceServer(server, member)
		adminv1.RegisterLeaderServiceServer(server, member)
		adminv1.RegisterQueueServiceServer(server, member)
		address, _ := start(t, server)
		fleet.addresses = append(fleet.addresses, address)
	}
	return fleet
}

// lead makes another one the leader.
func (f *fleet) lead(leader int, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leader, f.known = leader, known
}

// address is that of the leader, if it is known; with the lock held.
func (f *fleet) address() string {
	if f.leader < 0 || !f.known {
		return ""
	}
	return f.addresses[f.leader]
}

func (f *fleet) ListLeases(context.Context, string, string) ([]Lease, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listed++
	var leases []Lease
	for index, address := range f.addresses {
		leases = append(leases, Lease{
			HolderIdentity: string(rune('a' + index)),
			Annotations:    map[string]string{addressAnnotation: address, caAnnotation: f.announced},
			RenewTime:      time.Now(),
			LeaseDuration:  time.Hour,
		})
	}
	return leases, nil
}

func (f *fleet) GetLease(context.Context, string, string) (Lease, error) { return Lease{}, ErrNoLease }

func (m *member) GetLeader(context.Context, *adminv1.GetLeaderRequest) (*adminv1.GetLeaderResponse, error) {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	leader := &adminv1.Leader{Leading: m.fleet.leader == m.index, AdminAddress: m.fleet.address()}
	if m.fleet.leader >= 0 {
		leader.HolderIdentity = string(rune('a' + m.fleet.leader))
	}
	return &adminv1.GetLeaderResponse{Leader: leader}, nil
}

func (m *member) StepDown(_ context.Context, request *adminv1.StepDownRequest) (*adminv1.StepDownResponse, error) {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	m.fleet.calls = append(m.fleet.calls, m.index)
	m.fleet.expected = append(m.fleet.expected, request.GetExpectedLeaderIdentity())
	// The next one leads before the request arrives.
	m.fleet.leader += m.fleet.moves
	if m.fleet.leader != m.index {
		return nil, m.refusal()
	}
	return &adminv1.StepDownResponse{}, nil
}

func (m *member) SyncObject(context.Context, *adminv1.SyncObjectRequest) (*adminv1.SyncObjectResponse, error) {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	m.fleet.calls = append(m.fleet.calls, m.index)
	if m.fleet.leader == m.index {
		return &adminv1.SyncObjectResponse{}, m.fleet.fails
	}
	return nil, m.refusal()
}

// refusal says who leads; with the lock held.
func (m *member) refusal() error {
	refusal := status.New(codes.FailedPrecondition, "another replica leads")
	info := &errdetails.ErrorInfo{Reason: notLeader, Domain: errorDomain, Metadata: map[string]string{}}
	if address := m.fleet.address(); address != "" {
		info.Metadata["leader_address"] = address
	}
	refusal, err := refusal.WithDetails(info)
	if err != nil {
		return err
	}
	return refusal.Err()
}

// asked are the replicas that got a call, since the last time.
func (f *fleet) asked() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

func (f *fleet) follow(t *testing.T) *Follower {
	t.Helper()
	follower, err := Follow(Finder{Leases: f, Options: Options{CA: f.authority.pem}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = follower.Close() })
	follower.pause = func(context.Context, time.Duration) error { return errors.New("a pause in vain") }
	return follower
}

func reconcile(ctx context.Context, leader *Client) error {
	_, err := leader.Queues.SyncObject(ctx, &adminv1.SyncObjectRequest{})
	return err
}

func TestTheLeaderIsFollowedToWhereItIs(t *testing.T) {
	fleet := newFleet(t, 3)
	follower := fleet.follow(t)
	for _, leader := range []int{2, 2, 0, 1} {
		fleet.lead(leader, true)
		if err := follower.Call(t.Context(), reconcile); err != nil {
			t.Fatal(err)
		}
		if asked := fleet.asked(); asked[len(asked)-1] != leader || len(asked) > 2 {
			t.Errorf("%d leads, and these were asked: %v", leader, asked)
		}
	}
}

func TestStepDownIsForTheLeaderThatWasFoundAndIsSentOnce(t *testing.T) {
	fleet := newFleet(t, 3)
	follower := fleet.follow(t)
	// The second time the connection is to a replica that leads no longer.
	for _, leader := range []int{1, 2} {
		fleet.lead(leader, true)
		if _, err := follower.StepDown(t.Context(), &adminv1.StepDownRequest{}); err != nil {
			t.Fatal(err)
		}
		if asked := fleet.asked(); !slices.Equal(asked, []int{leader}) {
			t.Errorf("%d leads, and these were asked: %v", leader, asked)
		}
	}
	// Another one leads by the time the request arrives: it is not asked.
	fleet.lead(0, true)
	fleet.moves = 1
	if _, err := follower.StepDown(t.Context(), &adminv1.StepDownRequest{}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("%v", err)
	}
	if asked := fleet.asked(); !slices.Equal(asked, []int{0}) || !slices.Equal(fleet.expected, []string{"b", "c", "a"}) {
		t.Errorf("%v, %v", asked, fleet.expected)
	}
	fleet.lead(-1, true)
	if _, err := follower.StepDown(t.Context(), &adminv1.StepDownRequest{}); !errors.Is(err, ErrNoLeader) {
		t.Errorf("%v", err)
	}
}

func TestWhoIsNamedLeadsToTheLeaderWithoutLeases(t *testing.T) {
	fleet := newFleet(t, 2)
	follower, err := Follow(Finder{Addresses: fleet.addresses[:1], Options: Options{CA: fleet.authority.pem}})
	if err != nil {
		t.Fatal(err)
	}
	defer follower.Close()
	for _, leader := range []int{1, 0} {
		fleet.lead(leader, true)
		if err := follower.Call(t.Context(), reconcile); err != nil {
			t.Fatal(err)
		}
	}
	if asked := fleet.asked(); !slices.Equal(asked, []int{1, 1, 0}) {
		t.Errorf("%v", asked)
	}
}

func TestAnElectionIsWaitedFor(t *testing.T) {
	fleet := newFleet(t, 2)
	fleet.lead(-1, true)
	follower := fleet.follow(t)
	var pauses []time.Duration
	follower.pause = func(_ context.Context, pause time.Duration) error {
		pauses = append(pauses, pause)
		if len(pauses) == 6 {
			fleet.lead(1, true)
		}
		return nil
	}
	if err := follower.Call(t.Context(), reconcile); err != nil {
		t.Fatal(err)
	}
	milliseconds := []time.Duration{250, 500, 1000, 2000, 4000, 4000}
	for index, pause := range pauses {
		if pause != milliseconds[index]*time.Millisecond {
			t.Errorf("%v", pauses)
		}
	}
	if asked := fleet.asked(); !slices.Equal(asked, []int{0, 0, 0, 0, 0, 0, 1}) {
		t.Errorf("%v", asked)
	}
}

func TestThereIsAnEndToIt(t *testing.T) {
	fleet := newFleet(t, 1)
	fleet.lead(-1, true)
	follower := fleet.follow(t)
	follower.Attempts, follower.pause = 3, func(context.Context, time.Duration) error { return nil }
	err := follower.Call(t.Context(), reconcile)
	if !errors.Is(err, ErrNoLeader) || status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "no leader in 3 attempts") {
		t.Errorf("%v", err)
	}
	if asked := fleet.asked(); len(asked) != 3 {
		t.Errorf("%v", asked)
	}
	follower.Attempts, follower.pause = 0, pause
	err = follower.Call(t.Context(), func(ctx context.Context, leader *Client) error {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("a call has a deadline")
		}
		return status.Error(codes.NotFound, "no such thing")
	})
	if status.Code(err) != codes.NotFound {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = follower.Call(ctx, func(ctx context.Context, leader *Client) error {
		cancel()
		return reconcile(context.WithoutCancel(ctx), leader)
	})
	if !errors.Is(err, context.Canceled) || status.Code(err) != codes.FailedPrecondition {
		t.Errorf("%v", err)
	}
}

func TestWhatMayHaveBeenDoneIsNotDoneAgain(t *testing.T) {
	fleet := newFleet(t, 2)
	follower := fleet.follow(t)
	fleet.fails = status.Error(codes.Unavailable, "lost on the way")
	if err := follower.Call(t.Context(), reconcile); status.Code(err) != codes.Unavailable {
		t.Errorf("%v", err)
	}
	if asked := fleet.asked(); !slices.Equal(asked, []int{0}) {
		t.Errorf("%v", asked)
	}
	// The next one finds the leader anew.
	fleet.lead(1, true)
	if err := follower.Call(t.Context(), reconcile); status.Code(err) != codes.Unavailable {
		t.Errorf("%v", err)
	}
	if asked := fleet.asked(); !slices.Equal(asked, []int{1}) || fleet.listed != 2 {
		t.Errorf("%v, %d", asked, fleet.listed)
	}
}

func TestAReplicaThatIsAwayIsPassedBy(t *testing.T) {
	fleet := newFleet(t, 2)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	away := listener.Addr().String()
	_ = listener.Close()
	fleet.addresses = append([]string{away}, fleet.addresses...)
	fleet.leader = 1
	follower := fleet.follow(t)
	// Members count without the one that is away, and do not know where the leader is.
	fleet.known = false
	if err := follower.Call(t.Context(), func(context.Context, *Client) error { return nil }); err != nil {
		t.Errorf("%v", err)
	}
	fleet.addresses = fleet.addresses[:1]
	nobody := fleet.follow(t)
	err = nobody.Call(t.Context(), reconcile)
	if err == nil || !strings.Contains(err.Error(), "no replica could be reached: a at "+away) {
		t.Errorf("%v", err)
	}
}

func TestFindersThatCannotBe(t *testing.T) {
	for _, finder := range []Finder{{}, {Leases: &fleet{}, Addresses: []string{"a:1"}}} {
		if _, err := Follow(finder); err == nil || !strings.Contains(err.Error(), "exactly one") {
			t.Errorf("%v", err)
		}
	}
	fleet := newFleet(t, 1)
	follower, err := Follow(Finder{Leases: fleet, Options: Options{Token: "secret"}})
	if err != nil {
		t.Fatal(err)
	}
	follower.pause = func(context.Context, time.Duration) error { t.Error("a pause in vain"); return nil }
	if err := follower.Call(t.Context(), reconcile); !errors.Is(err, ErrNotVouchedFor) {
		t.Errorf("%v", err)
	}
	// Announcements are set aside, for the sake of the token, and the cluster's authority is another one.
	stranger := newAuthority(t, "stranger")
	fleet.announced = string(fleet.authority.pem)
	careful, err := Follow(Finder{
		Leases: fleet, Options: Options{Token: "secret"}, ClusterCAFile: write(t, t.TempDir(), "ca.pem", stranger.pem),
	})
	if err != nil {
		t.Fatal(err)
	}
	careful.Attempts = 1
	if err := careful.Call(t.Context(), reconcile); !errors.Is(err, ErrNoLeader) || !strings.Contains(err.Error(), "TrustAnnounced") {
		t.Errorf("%v", err)
	}
	_ = follower.Close()
	if err := follower.Call(t.Context(), reconcile); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("%v", err)
	}
}

func TestCallsOfManyGoroutinesAllEnd(t *testing.T) {
	fleet := newFleet(t, 3)
	follower := fleet.follow(t)
	follower.pause = func(context.Context, time.Duration) error { return nil }
	follower.Attempts = 1000
	var group sync.WaitGroup
	for index := range 24 {
		group.Go(func() {
			fleet.lead(index%3, true)
			if err := follower.Call(t.Context(), reconcile); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

func TestOfManyCallsOneLooksForTheLeader(t *testing.T) {
	fleet := newFleet(t, 2)
	follower := fleet.follow(t)
	var group sync.WaitGroup
	for range 100 {
		group.Go(func() {
			if err := follower.Call(t.Context(), reconcile); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if fleet.listed != 1 {
		t.Errorf("the Leases were read %d times", fleet.listed)
	}
}

// A call that is cancelled while it looks keeps no other call from the leader.
func TestTheSearchOfACallThatIsCancelledIsItsOwn(t *testing.T) {
	fleet := newFleet(t, 2)
	follower := fleet.follow(t)
	given, cancel := context.WithCancel(t.Context())
	looks := make(chan struct{})
	follower.finder.Leases = slowLeases{fleet, looks}
	var group sync.WaitGroup
	group.Go(func() {
		if err := follower.Call(given, reconcile); err == nil {
			t.Error("a call that is cancelled is none")
		}
	})
	<-looks
	group.Go(func() {
		if err := follower.Call(t.Context(), reconcile); err != nil {
			t.Error(err)
		}
	})
	cancel()
	group.Wait()
}

// slowLeases lets the first reader wait until it gives up.
type slowLeases struct {
	*fleet
	looks chan struct{}
}

func (s slowLeases) ListLeases(ctx context.Context, namespace, name string) ([]Lease, error) {
	select {
	case <-s.looks:
		return s.fleet.ListLeases(ctx, namespace, name)
	default:
		close(s.looks)
		<-ctx.Done()
		return nil, ctx.Err()
	}
}
