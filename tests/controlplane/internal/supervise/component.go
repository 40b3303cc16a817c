package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	probeInterval = 50 * time.Millisecond
	probeTimeout  = 2 * time.Second
)

// ErrRunning is returned when a component that runs is started, ErrNotRunning when one that does not is signaled, and
// ErrKilled when a stop needed more than a request.
var (
	ErrRunning    = errors.New("is running already")
	ErrNotRunning = errors.New("is not running")
	ErrKilled     = errors.New("did not end in time after SIGTERM and was killed")
)

// Probe says whether a component is ready, with a reason if it is not.
type Probe func(ctx context.Context) error

// Spec is what a component runs. It stays the same over restarts: same arguments, same ports.
type Spec struct {
	Name    string
	Program string
	Args    []string
	// Env is added to the launcher's own environment, as NAME=value.
	Env     []string
	LogFile string
	// URL is where the component serves, for people and tests; empty if it doesn't.
	URL string
	// Ready is polled after a start. A component without it is ready as soon as it runs.
	Ready Probe
	// ReadyWithin bounds the wait for Ready, and StopWithin the wait after SIGTERM before SIGKILL.
	ReadyWithin time.Duration
	StopWithin  time.Duration
	// Tier orders the stop of all components: higher tiers first, one tier at once.
	Tier int
}

// State is what a component is doing.
type State string

// The states of a component. Exited means that it ended by itself, Stopped that it was told to or never ran.
const (
	Starting State = "starting"
	Ready    State = "ready"
	Paused   State = "paused"
	Stopped  State = "stopped"
	Exited   State = "exited"
)

// Info describes a component at one moment.
type Info struct {
	Name    string   `json:"name"`
	State   State    `json:"state"`
	PID     int      `json:"pid,omitempty"`
	Starts  int      `json:"starts"`
	Exit    string   `json:"exit,omitempty"`
	URL     string   `json:"url,omitempty"`
	Program string   `json:"program"`
	Args    []string `json:"args"`
	Log     string   `json:"log"`
}

// Component is one supervised process. Its methods may be called at the same time.
type Component struct {
	spec    Spec
	spawner *Spawner
	onExit  func(Info)

	mu     sync.Mutex
	run    *run
	starts int
}

// run is one life of the process. Fields after done are guarded by the component's mutex.
type run struct {
	process *os.Process
	done    chan struct{}

	ended   bool
	exit    string
	ready   bool
	paused  bool
	wanted  bool // its end was asked for
	started time.Time
}

// Info describes the component now.
func (c *Component) Info() Info {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.info()
}

func (c *Component) info() Info {
	info := Info{
		Name: c.spec.Name, State: Stopped, Starts: c.starts, URL: c.spec.URL,
		Program: c.spec.Program, Args: c.spec.Args, Log: c.spec.LogFile,
	}
	if c.run == nil {
		return info
	}
	switch {
	case c.run.ended && !c.run.wanted:
		info.State = Exited
	case c.run.ended:
		info.State = Stopped
	case c.run.paused:
		info.State = Paused
	case c.run.ready:
		info.State = Ready
	default:
		info.State = Starting
	}
	if c.run.ended {
		info.Exit = c.run.exit
	} else {
		info.PID = c.run.process.Pid
	}
	return info
}

// Start runs the program and waits until it is ready. A component that ends first, or is not ready in time, is an error
// that carries the end of its log; in the latter case the process is left running.
func (c *Component) Start(ctx context.Context) error {
	current, err := c.spawn()
	if err != nil {
		return fmt.Errorf("%s %w", c.spec.Name, err)
	}
	return c.awaitReady(ctx, current)
}

func (c *Component) spawn() (*run, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run != nil && !c.run.ended {
		return nil, ErrRunning
	}
	log, err := os.OpenFile(c.spec.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("can't be started: %w", err)
	}
	defer log.Close() // the child has its own descriptor
	now := time.Now()
	header := fmt.Sprintf("=== start %d at %s: %s %s\n", c.starts+1, now.UTC().Format(time.RFC3339Nano), c.spec.Program,
		strings.Join(c.spec.Args, " "))
	if _, err := log.WriteString(header); err != nil {
		return nil, fmt.Errorf("can't be started: %w", err)
	}
	cmd := exec.Command(c.spec.Program, c.spec.Args...)
	cmd.Env = append(os.Environ(), c.spec.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := c.spawner.Start(cmd); err != nil {
		return nil, fmt.Errorf("can't be started: %w", err)
	}
	c.starts++
	c.run = &run{process: cmd.Process, done: make(chan struct{}), started: now}
	go c.reap(cmd, c.run)
	return c.run, nil
}

func (c *Component) reap(cmd *exec.Cmd, r *run) {
	// The error repeats the state, which is kept in full.
	_ = cmd.Wait()
	c.mu.Lock()
	r.ended = true
	r.exit = fmt.Sprintf("%s after %s", cmd.ProcessState, time.Since(r.started).Round(time.Millisecond))
	info := c.info()
	unexpected := !r.wanted
	c.mu.Unlock()
	close(r.done)
	if unexpected && c.onExit != nil {
		c.onExit(info)
	}
}

func (c *Component) awaitReady(ctx context.Context, r *run) error {
	ctx, cancel := context.WithTimeout(ctx, c.spec.ReadyWithin)
	defer cancel()
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	var reason error
	for {
		if reason = c.probe(ctx); reason == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			if r.ended {
				return c.failed("ended during start", errors.New(r.exit))
			}
			r.ready = true
			return nil
		}
		select {
		case <-r.done:
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.failed("ended before it was ready", errors.New(r.exit))
		case <-ctx.Done():
			return c.failed("is not ready", reason)
		case <-ticker.C:
		}
	}
}

func (c *Component) probe(ctx context.Context) error {
	if c.spec.Ready == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return c.spec.Ready(ctx)
}

func (c *Component) failed(what string, cause error) error {
	return &StartError{Component: c.spec.Name, What: what, Cause: cause, LogFile: c.spec.LogFile,
		LogTail: Tail(c.spec.LogFile, tailLines)}
}

// Kill sends SIGKILL and waits for the end.
func (c *Component) Kill(ctx context.Context) error {
	r, err := c.signal(syscall.SIGKILL, func(r *run) { r.wanted = true })
	if err != nil {
		return err
	}
	return c.awaitEnd(ctx, r)
}

// Stop sends SIGTERM, waits, and sends SIGKILL to a process that takes longer than its StopWithin. A component that
// does not run is stopped already.
func (c *Component) Stop(ctx context.Context) error {
	r, err := c.signal(syscall.SIGTERM, func(r *run) { r.wanted = true })
	if errors.Is(err, ErrNotRunning) {
		return nil
	}
	if err != nil {
		return err
	}
	// A paused process could not answer.
	if err := r.process.Signal(syscall.SIGCONT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s: %w", c.spec.Name, err)
	}
	patience := time.NewTimer(c.spec.StopWithin)
	defer patience.Stop()
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
	case <-patience.C:
	}
	if err := r.process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s: %w", c.spec.Name, err)
	}
	<-r.done
	return fmt.Errorf("%s %w", c.spec.Name, ErrKilled)
}

// Restart stops and starts the component. One that had to be killed is started all the same.
func (c *Component) Restart(ctx context.Context) error {
	if err := c.Stop(ctx); err != nil && !errors.Is(err, ErrKilled) {
		return err
	}
	return c.Start(ctx)
}

// Pause freezes the process with SIGSTOP: its connections stay open and, from when this returns on, nothing answers.
func (c *Component) Pause(ctx context.Context) error {
	r, err := c.signal(syscall.SIGSTOP, func(r *run) { r.paused = true })
	if err != nil {
		return err
	}
	return c.awaitFrozen(ctx, r)
}

// Resume lets a paused process go on.
func (c *Component) Resume(context.Context) error {
	_, err := c.signal(syscall.SIGCONT, func(r *run) { r.paused = false })
	return err
}

func (c *Component) signal(signal syscall.Signal, note func(*run)) (*run, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run == nil || c.run.ended {
		return nil, fmt.Errorf("%s %w", c.spec.Name, ErrNotRunning)
	}
	if err := c.run.process.Signal(signal); err != nil {
		if errors.Is(err, os.ErrProcessDone) {
			err = ErrNotRunning
		}
		return nil, fmt.Errorf("%s %w", c.spec.Name, err)
	}
	note(c.run)
	return c.run, nil
}

func (c *Component) awaitEnd(ctx context.Context, r *run) error {
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s has not ended yet: %w", c.spec.Name, ctx.Err())
	}
}
