package cluster

import (
	"context"
	"fmt"
	"path/filepath"

	"coxswain.dev/controlplane/internal/supervise"
)

// Addition asks for a component beside those of the control plane.
type Addition struct {
	Name string `json:"name"`
	// Program is a path, or the name of a binary of the control plane.
	Program string   `json:"program"`
	Args    []string `json:"args"`
	Env     []string `json:"env"`
	// Manager says that the program is a controller manager: it gets the cluster's usual flags and a free port before
	// Args, and is ready when its /healthz says so.
	Manager bool `json:"manager"`
	// ReadyURL is polled to see that a program which is not a Manager is ready; without it, it is so when it runs.
	ReadyURL string `json:"readyURL"`
}

// Add puts a further component into the control plane. It is not started yet.
func (c *Cluster) Add(a Addition) (*supervise.Component, error) {
	if a.Name == "" || a.Name != filepath.Base(a.Name) || a.Program == "" {
		return nil, fmt.Errorf("%w: a component needs a program, and a name without slashes", ErrInvalid)
	}
	program := a.Program
	if filepath.Base(program) == program {
		program = filepath.Join(c.options.BinDir, program)
	}
	if a.Manager {
		return c.addManager(a, program)
	}
	spec := c.spec(a.Name, tierClients, nil)
	spec.Program, spec.Args, spec.Env = program, a.Args, a.Env
	if a.ReadyURL != "" {
		spec.URL = a.ReadyURL
		spec.Ready = getProbe(c.tlsClient, a.ReadyURL)
	}
	return c.set.Add(spec)
}

func (c *Cluster) addManager(a Addition, program string) (*supervise.Component, error) {
	port, err := c.ports.Get()
	if err != nil {
		return nil, err
	}
	spec := c.managerSpec(a.Name, program, port, a.Args)
	spec.Env = a.Env
	component, err := c.set.Add(spec)
	if err != nil {
		c.ports.Put(port)
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.managerPorts[a.Name] = port
	return component, nil
}

// Remove stops a component and forgets it.
func (c *Cluster) Remove(ctx context.Context, name string) error {
	err := c.set.Remove(ctx, name)
	c.mu.Lock()
	defer c.mu.Unlock()
	if port, ok := c.managerPorts[name]; ok {
		c.ports.Put(port)
		delete(c.managerPorts, name)
	}
	return err
}
