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
	// A live replica responds sooner.
	probeTimeout = 5 * time.Second
	// An election takes seconds. Each pause is twice as long as the previous one.
	firstPause, longestPause = 250 * time.Millisecond, 4 * time.Second

	errorDomain = "admin.coxswain.dev"
	notLeader   = "NOT_LEADER"
)

// ErrNoLeader is the error of a call for which no leader was found. It wraps the last error.
var ErrNoLeader = errors.New("coxswain: no leader")

// Follower sends calls to the current leader. It is safe for concurrent use.
type Follower struct {
	// Timeout limits calls whose context has no deadline; 0 means 30 seconds.
	Timeout time.Duration
	// Attempts is the maximum number of attempts of a call; 0 means 10.
	Attempts int

	finder Finder
	// pause waits. Tests replace it.
	pause func(ctx context.Context, duration time.Duration) error

	mu      sync.Mutex
	current *session
	search  *search
	closed  bool
}

// search is in progress until done is closed. Then, err is the error for waiting calls.
type search struct {
	done chan struct{}
	err  error
}

// session is a client with the number of its calls. A retired session is closed after its last call.
type session struct {
	client  *Client
	calls   int
	retired bool
}

// Follow returns a follower of the leader. The first call searches for the leader.
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

// Call runs call with a client of the leader. If the replica does not lead (NOT_LEADER), Call searches for the leader
// and runs call again, until the context's deadline: after NOT_LEADER, nothing was changed. Call returns ErrNoLeader
// after the last attempt or at the deadline. It returns any other error unchanged, because the request may have been
// applied. After UNAVAILABLE, the next Call searches for the leader. The function call must make exactly one request
// with the given context, because it can run several times.
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
		// A new address is called at once; otherwise the election is still in progress.
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

// StepDown makes the current leader step down. It sends the request once. If another replica has become the leader in
// the meantime, it returns the replica's error (LEADER_CHANGED), and no leader steps down.
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
			return nil, fmt.Errorf("%w: the Lease has no holder", ErrNoLeader)
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

// forget makes the next call search for the leader.
func (f *Follower) forget() {
	f.mu.Lock()
	current := f.current
	f.mu.Unlock()
	if current != nil {
		f.retire(current)
	}
}

// once sends a call to the presumed leader: next, if it is not empty.
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

// Close closes the connection after the last call on it.
func (f *Follower) Close() error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.forget()
	return nil
}

// enter adds a call to the session. Without a session, only one of the concurrent calls searches for the leader.
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
			return nil, fmt.Errorf("%w: another call is still searching: %w", ErrNoLeader, ctx.Err())
		}
	}
	client, err := f.find(ctx, next)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.search = nil
	defer close(own.done)
	if err != nil {
		var unreachable *unreachableError
		// An error caused by this call's context does not concern the other calls.
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

// join adds a call to the session if one exists. Otherwise it returns the search in progress, which is own if there was
// none.
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
		// Closing twice is harmless.
		_ = session.client.Close()
	}
}

// unreachableError is the error if no replica responds. The call can be repeated, because nothing was sent.
type unreachableError struct{ tried []string }

func (e *unreachableError) Error() string {
	if len(e.tried) == 0 {
		return "coxswain: no Lease announces a replica that serves the admin API"
	}
	return "coxswain: no replica could be reached: " + strings.Join(e.tried, "; ")
}

// find connects to the leader: next if it is set, else the leader by the Leases, else the leader by a replica's response.
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
			// An invalid Lease must not prevent calls to the other replicas.
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
		// Another attempt would fail in the same way.
		return nil, fmt.Errorf("%s: %w", unreachable.Error(), refusal)
	}
	return nil, unreachable
}

// at returns the replica at an address that another replica returned.
func (r Replicas) at(address string) Replica {
	for _, replica := range r.Candidates {
		if replica.Address == address {
			return replica
		}
	}
	return Replica{Address: address}
}

// probe reads the leader with a call that can be repeated, so that calls are not sent to an unreachable replica. A caller
// without this permission continues, because the call itself shows the leader.
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

// leaderAddress returns the leader's address from the error of a replica that does not lead; empty if the replica does not
// know it.
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
