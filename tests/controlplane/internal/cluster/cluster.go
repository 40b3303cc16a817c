package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"coxswain.dev/controlplane/internal/ports"
	"coxswain.dev/controlplane/internal/supervise"
)

// startAttempts is how often a component whose port was taken in the meantime is tried with another one.
const startAttempts = 4

// ErrInvalid is returned for requests that can't be carried out as they are.
var ErrInvalid = errors.New("invalid")

// Cluster is a running control plane.
type Cluster struct {
	options  Options
	progress *progress

	claimed     *claimed
	ports       ports.Pool
	credentials *credentials
	set         *supervise.Set
	api         *apiClient
	tlsClient   *http.Client
	etcdURL     string

	mu sync.Mutex
	// managerPorts are the ports of added managers, by component.
	managerPorts map[string]int
}

// progress prints what is happening and how long it has taken.
type progress struct {
	mu    sync.Mutex
	out   io.Writer
	began time.Time
}

func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	elapsed := time.Since(p.began).Seconds()
	// Nothing better can be done when the terminal is gone.
	_, _ = fmt.Fprintf(p.out, "controlplane %6.2fs  %s\n", elapsed, fmt.Sprintf(format, args...))
}

// Start brings a control plane up. What was started is stopped again if it fails.
func Start(ctx context.Context, options Options, out io.Writer) (*Cluster, error) {
	c := &Cluster{options: options, progress: &progress{out: out, began: time.Now()}, managerPorts: map[string]int{}}
	c.set = supervise.NewSet(func(info supervise.Info) { c.progress.say("%s ended: %s", info.Name, info.Exit) })
	var err error
	if c.claimed, err = claim(options.Dir); err != nil {
		return nil, err
	}
	if err := c.bringUp(ctx); err != nil {
		// Logs are kept for whoever looks into the failure, even with --rm.
		c.options.RemoveDir = false
		return nil, errors.Join(err, c.Close(context.WithoutCancel(ctx)))
	}
	return c, nil
}

func (c *Cluster) bringUp(ctx context.Context) error {
	var stages []string
	var err error
	if c.options.Kwok {
		if stages, err = c.options.stages(); err != nil {
			return err
		}
	}
	// The store needs no certificates, so both are made at once.
	if err := together(ctx, c.startEtcd, c.makeCredentials); err != nil {
		return err
	}
	if err := c.writeConfigFiles(); err != nil {
		return err
	}
	if err := c.startAPIServer(ctx); err != nil {
		return err
	}
	for _, who := range identities {
		if _, err := c.writeIdentity(who); err != nil {
			return err
		}
	}
	var steps []func(context.Context) error
	if c.options.Scheduler {
		steps = append(steps, c.startScheduler)
	}
	if c.options.GoManager {
		steps = append(steps, c.startGoManager)
	}
	if c.options.Kwok {
		steps = append(steps, func(ctx context.Context) error { return c.startNodes(ctx, stages) })
	}
	return together(ctx, steps...)
}

// together runs steps at the same time and gives the first error; the others are cancelled.
func together(ctx context.Context, steps ...func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	for _, step := range steps {
		group.Go(func() {
			if err := step(ctx); err != nil {
				cancel(err)
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

func (c *Cluster) makeCredentials(context.Context) error {
	var err error
	if c.credentials, err = newCredentials(c.options.path(pkiDir)); err != nil {
		return err
	}
	if c.tlsClient, err = newTLSClient(c.credentials.cluster.Cert, nil); err != nil {
		return err
	}
	c.progress.say("certificates and keys made")
	return nil
}

func (c *Cluster) startEtcd(ctx context.Context) error {
	return c.startOnPorts(ctx, 2, func(ports []int) (supervise.Spec, error) {
		spec := c.etcdSpec(ports[0], ports[1])
		c.etcdURL = spec.URL
		return spec, nil
	})
}

func (c *Cluster) startAPIServer(ctx context.Context) error {
	return c.startOnPorts(ctx, 1, func(ports []int) (supervise.Spec, error) {
		client, err := newTLSClient(c.credentials.cluster.Cert, &c.credentials.admin)
		if err != nil {
			return supervise.Spec{}, err
		}
		spec := c.apiServerSpec(ports[0], c.etcdURL)
		c.api = &apiClient{http: client, server: spec.URL}
		return spec, nil
	})
}

func (c *Cluster) startScheduler(ctx context.Context) error {
	return c.startOnPorts(ctx, 1, func(ports []int) (supervise.Spec, error) { return c.schedulerSpec(ports[0]), nil })
}

func (c *Cluster) startGoManager(ctx context.Context) error {
	return c.startOnPorts(ctx, 1, func(ports []int) (supervise.Spec, error) {
		program := filepath.Join(c.options.BinDir, GoManager)
		return c.managerSpec(GoManager, program, ports[0], arguments(nil, c.options.Args[GoManager])), nil
	})
}

func (c *Cluster) startNodes(ctx context.Context, stages []string) error {
	if err := c.createKwokRole(ctx); err != nil {
		return err
	}
	startKwok := func(ctx context.Context) error {
		return c.startOnPorts(ctx, 1, func(ports []int) (supervise.Spec, error) {
			return c.kwokSpec(ports[0], stages), nil
		})
	}
	createNodes := func(ctx context.Context) error { return c.createNodes(ctx, c.options.Nodes) }
	if err := together(ctx, startKwok, createNodes); err != nil {
		return err
	}
	if err := c.settleNodes(ctx, c.options.Nodes); err != nil {
		return err
	}
	c.progress.say("%d nodes ready", c.options.Nodes)
	return nil
}

// startOnPorts starts a component, and tries others when its ports were taken between the reservation and the start.
func (c *Cluster) startOnPorts(ctx context.Context, count int, build func([]int) (supervise.Spec, error)) error {
	for attempt := 1; ; attempt++ {
		reserved := make([]int, count)
		for i := range reserved {
			port, err := c.ports.Get()
			if err != nil {
				return err
			}
			reserved[i] = port
		}
		spec, err := build(reserved)
		if err != nil {
			return err
		}
		component, err := c.set.Add(spec)
		if err != nil {
			return err
		}
		err = component.Start(ctx)
		if err == nil {
			c.progress.say("%s ready at %s (pid %d)", spec.Name, spec.URL, component.Info().PID)
			return nil
		}
		var failure *supervise.StartError
		conflict := errors.As(err, &failure) && strings.Contains(failure.LogTail, "address already in use")
		if !conflict || attempt == startAttempts {
			return err
		}
		c.progress.say("%s found its port taken; trying another", spec.Name)
		if err := c.set.Remove(ctx, spec.Name); err != nil {
			return err
		}
		for _, port := range reserved {
			c.ports.Put(port)
		}
	}
}

// writeIdentity writes NAME.kubeconfig and gives its path.
func (c *Cluster) writeIdentity(who identity) (string, error) {
	path := c.options.path(who.name + ".kubeconfig")
	return path, c.credentials.writeKubeconfig(path, c.api.server, who)
}

// AddIdentity makes a kubeconfig for a further user of the cluster, with a client certificate for it.
func (c *Cluster) AddIdentity(name, user string, groups []string) (string, error) {
	if name == "" || name != filepath.Base(name) || strings.HasPrefix(name, ".") {
		return "", fmt.Errorf("%w: %q can't be a file's name", ErrInvalid, name)
	}
	for _, taken := range identities {
		if name == taken.name {
			return "", fmt.Errorf("%w: %s is the control plane's own", ErrInvalid, name)
		}
	}
	if user == "" {
		user = name
	}
	return c.writeIdentity(identity{name: name, user: user, groups: groups})
}

// Components gives the set of components, to be looked at and controlled.
func (c *Cluster) Components() *supervise.Set { return c.set }

// SocketPath is where the control API is served.
func (c *Cluster) SocketPath() string { return c.options.path(socketFile) }

// Close stops everything and gives the directory up.
func (c *Cluster) Close(ctx context.Context) error {
	c.progress.say("stopping")
	err := errors.Join(c.set.Close(ctx), c.ports.Close(), c.claimed.release(c.options.RemoveDir))
	c.progress.say("stopped")
	return err
}
