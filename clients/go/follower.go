package coxswain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	adminv1 "github.com/coxswain-dev/coxswain/clients/go/coxswain/admin/v1"
)

const (
	defaultTimeout  = 30 * time.Second
	defaultAttempts = 10
	// A replica that is there says sooner who leads.
	probeTimeout = 5 * time.Second
	// An election takes seconds: the first pause is short, and each is twice as long as the one before.
	firstPause, longestPause = 250 * time.Millisecond, 4 * time.Second

	errorDomain = "admin.coxswain.dev"
	notLeader   = "NOT_LEADER"
)

// ErrNoLeader is the error of a call that nobody could be found for. It wraps what was said last.
var ErrNoLeader = errors.New("coxswain: no leader")

// Follower sends calls to the replica that leads, whichever that is by then. It is for many goroutines at once.
type Follower struct {
	// Timeout bounds calls whose context has no deadline; 0 for 30 seconds.
	Timeout time.Duration
	// Attempts bounds how often a call is sent; 0 for ten times.
	Attempts int

	finder Finder
	// pause waits; a test does not.
	pause func(ctx context.Context, duration time.Duration) error

	mu      sync.Mutex
	current *session
	search  *search
	closed  bool
}

// search is under way until done is closed; err is what others may have of it then.
type search struct {
	done chan struct{}
	err  error
}

// session is a client, and how many calls are on it: it is closed with the last of them.
type session struct {
	client  *Client
	calls   int
	retired bool
}

// Follow makes a follower of the leader. It looks for nothing before the first call.
func Follow(finder Finder) (*Follower, error) {
	if err := finder.check(); err != nil {
		return nil, err
	}
	return &Follower{finder: finder, pause: pause}, nil
}

func pause(ctx context.Context, duration time.Duration) error {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Call runs call with a client of the leader. If the error is that the replica does not lead (NOT_LEADER), the leader is
// found anew and call runs again, until the context's deadline: NOT_LEADER says that nothing was done. The error is
// ErrNoLeader when the attempts or the time are used up. Any other error is returned as it is, for what was done is not
// known then; after UNAVAILABLE the next Call finds the leader anew. A call makes one request, with the context that it
// gets, for it runs again from its beginning.
func (f *Follower) Call(ctx context.Context, call func(ctx context.Context, leader *Client) error) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cmp.Or(f.Timeout, defaultTimeout))
		defer cancel()
	}
	attempts, wait, next := cmp.Or(f.Attempts, defaultAttempts), firstPause, ""
	asked := map[string]bool{}
	for attempt := 1; ; attempt++ {
		err := f.once(ctx, next, call)
		var unreachable *unreachableError
		address, refused := leaderAddress(err)
		if !refused && !errors.As(err, &unreachable) {
			return err
		}
		if attempt >= attempts {
			return fmt.Errorf("%w in %d attempts: %w", ErrNoLeader, attempt, err)
		}
		// Who is named for the first time is asked at once; else it is not settled yet who leads.
		next = address
		if address == "" || asked[address] {
			if stopped := f.pause(ctx, wait); stopped != nil {
				return fmt.Errorf("%w in %d attempts, and then %w: %w", ErrNoLeader, attempt, stopped, err)
			}
			wait = min(2*wait, longestPause)
		}
		asked[address] = true
	}
}

// StepDown makes the replica that leads give up leadership: the one that is found first, and no other. The request is sent
// once. If another replica leads by then, the error is that of the replica (LEADER_CHANGED), and no leader steps down.
func (f *Follower) StepDown(ctx context.Context, request *adminv1.StepDownRequest) (*adminv1.StepDownResponse, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cmp.Or(f.Timeout, defaultTimeout))
		defer cancel()
	}
	sent, next := proto.CloneOf(request), ""
	if sent.ExpectedLeaderIdentity == nil {
		var leader *adminv1.Leader
		if err := f.Call(ctx, func(ctx context.Context, client *Client) error {
			answer, err := client.Leader.GetLeader(ctx, &adminv1.GetLeaderRequest{})
			leader = answer.GetLeader()
			return err
		}); err != nil {
			return nil, err
		}
		if leader.GetHolderIdentity() == "" {
			return nil, fmt.Errorf("%w: nobody holds the Lease", ErrNoLeader)
		}
		sent.ExpectedLeaderIdentity = proto.String(leader.GetHolderIdentity())
		if !leader.GetLeading() {
			f.forget()
			next = leader.GetAdminAddress()
		}
	}
	var answer *adminv1.StepDownResponse
	err := f.once(ctx, next, func(ctx context.Context, client *Client) (err error) {
		answer, err = client.Leader.StepDown(ctx, sent)
		return err
	})
	return answer, err
}

// forget has the next call find the leader anew.
func (f *Follower) forget() {
	f.mu.Lock()
	current := f.current
	f.mu.Unlock()
	if current != nil {
		f.retire(current)
	}
}

// once sends a call to who seems to lead: next, if that is not empty.
func (f *Follower) once(ctx context.Context, next string, call func(context.Context, *Client) error) error {
	session, err := f.enter(ctx, next)
	if err != nil {
		return err
	}
	defer f.leave(session)
	err = call(ctx, session.client)
	if _, refused := leaderAddress(err); refused || status.Code(err) == codes.Unavailable {
		f.retire(session)
	}
	return err
}

// Close ends the connection, once the calls on it have ended.
func (f *Follower) Close() error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.forget()
	return nil
}

// enter counts a call on the session. However many calls find that the leader is gone, one of them looks for the next one.
func (f *Follower) enter(ctx context.Context, next string) (*session, error) {
	own := &search{done: make(chan struct{})}
	for {
		current, other, err := f.join(own)
		if err != nil || current != nil {
			return current, err
		}
		if other == own {
			break
		}
		select {
		case <-other.done:
			if other.err != nil {
				return nil, other.err
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: another call still looks for it: %w", ErrNoLeader, ctx.Err())
		}
	}
	client, err := f.find(ctx, next)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.search = nil
	defer close(own.done)
	if err != nil {
		var unreachable *unreachableError
		// An error that comes of the context of this call is its own.
		if errors.As(err, &unreachable) && ctx.Err() == nil {
			own.err = err
		}
		return nil, err
	}
	found := &session{client: client, calls: 1, retired: f.closed}
	if !found.retired {
		f.current = found
	}
	return found, nil
}

// join has a call on the session if there is one, and tells which search is under way otherwise: own, if there was none.
func (f *Follower) join(own *search) (*session, *search, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, nil, errors.New("coxswain: the follower is closed")
	}
	if f.current != nil {
		f.current.calls++
		return f.current, nil, nil
	}
	if f.search == nil {
		f.search = own
	}
	return nil, f.search, nil
}

func (f *Follower) leave(session *session) {
	f.mu.Lock()
	session.calls--
	f.mu.Unlock()
	f.sweep(session)
}

func (f *Follower) retire(session *session) {
	f.mu.Lock()
	session.retired = true
	if f.current == session {
		f.current = nil
	}
	f.mu.Unlock()
	f.sweep(session)
}

func (f *Follower) sweep(session *session) {
	f.mu.Lock()
	done := session.retired && session.calls == 0
	f.mu.Unlock()
	if done {
		// It may be closed already, which is no matter.
		_ = session.client.Close()
	}
}

// unreachableError is that no replica answers, which is worth another attempt: nothing was sent.
type unreachableError struct{ tried []string }

func (e *unreachableError) Error() string {
	if len(e.tried) == 0 {
		return "coxswain: no replica that serves the admin API has announced itself"
	}
	return "coxswain: no replica can be called: " + strings.Join(e.tried, "; ")
}

// find connects to who leads: next if that is known, else who the Leases say, else who a replica says.
func (f *Follower) find(ctx context.Context, next string) (*Client, error) {
	replicas, err := f.finder.Replicas(ctx)
	if err != nil {
		return nil, err
	}
	var tried []string
	var refusal error
	away := false
	try := func(replica Replica) (*adminv1.Leader, *Client, error) {
		client, err := f.finder.Connect(replica)
		if err != nil {
			// What one Lease says must not keep anybody from the other replicas.
			refusal = err
			tried = append(tried, fmt.Sprintf("%s: %v", replica, err))
			return nil, nil, nil
		}
		leader, err := probe(ctx, client)
		if err != nil {
			_ = client.Close()
			if ctx.Err() != nil || !isAway(err) {
				return nil, nil, fmt.Errorf("coxswain: %s: %w", replica, err)
			}
			away = true
			tried = append(tried, fmt.Sprintf("%s: %v%s", replica, err, f.finder.hint(replica)))
			return nil, nil, nil
		}
		return leader, client, nil
	}
	candidates := replicas.Candidates
	if next != "" {
		others := slices.DeleteFunc(slices.Clone(candidates), func(each Replica) bool { return each.Address == next })
		candidates = append([]Replica{replicas.at(next)}, others...)
	}
	for _, replica := range candidates {
		leader, client, err := try(replica)
		if err != nil {
			return nil, err
		}
		if client == nil {
			continue
		}
		elsewhere := leader.GetAdminAddress()
		if leader.GetLeading() || elsewhere == "" || elsewhere == replica.Address {
			return client, nil
		}
		_ = client.Close()
		if _, client, err = try(replicas.at(elsewhere)); err != nil {
			return nil, err
		}
		if client != nil {
			return client, nil
		}
	}
	tried = append(tried, replicas.PassedOver...)
	unreachable := &unreachableError{tried}
	if refusal != nil && !away {
		// It would be the same the next time.
		return nil, fmt.Errorf("%s: %w", unreachable.Error(), refusal)
	}
	return nil, unreachable
}

// at is the replica at an address that another one has named.
func (r Replicas) at(address string) Replica {
	for _, replica := range r.Candidates {
		if replica.Address == address {
			return replica
		}
	}
	return Replica{Address: address}
}

// probe asks who leads: a question that may be asked twice, so that no call is sent to who does not answer. Who may not
// ask that goes on all the same: the call itself will tell.
func probe(ctx context.Context, client *Client) (*adminv1.Leader, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	answer, err := client.Leader.GetLeader(ctx, &adminv1.GetLeaderRequest{})
	if status.Code(err) == codes.PermissionDenied {
		return &adminv1.Leader{}, nil
	}
	return answer.GetLeader(), err
}

func isAway(err error) bool {
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded
}

// leaderAddress is where the leader is, according to a replica that refuses because it does not lead; empty if that one
// does not know.
func leaderAddress(err error) (address string, refused bool) {
	if status.Code(err) != codes.FailedPrecondition {
		return "", false
	}
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetReason() == notLeader && info.GetDomain() == errorDomain {
			return info.GetMetadata()["leader_address"], true
		}
	}
	return "", false
}
