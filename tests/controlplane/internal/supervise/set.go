package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// ErrUnknown is returned for a name that no component has, and ErrExists for one that is taken.
var (
	ErrUnknown = errors.New("no such component")
	ErrExists  = errors.New("there is a component of this name already")
	ErrClosed  = errors.New("the control plane is being stopped")
)

// Set is the components of one control plane, in the order in which they were added.
type Set struct {
	spawner *Spawner
	onExit  func(Info)

	mu         sync.Mutex
	components []*Component
	closed     bool
}

// NewSet makes an empty set. onExit is called, from any goroutine, when a component ends without having been told to.
func NewSet(onExit func(Info)) *Set {
	return &Set{spawner: NewSpawner(), onExit: onExit}
}

// Add puts a component into the set without starting it.
func (s *Set) Add(spec Spec) (*Component, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if s.find(spec.Name) >= 0 {
		return nil, fmt.Errorf("%s: %w", spec.Name, ErrExists)
	}
	component := &Component{spec: spec, spawner: s.spawner, onExit: s.onExit}
	s.components = append(s.components, component)
	return component, nil
}

// Get finds a component by name.
func (s *Set) Get(name string) (*Component, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.find(name)
	if at < 0 {
		return nil, fmt.Errorf("%s: %w", name, ErrUnknown)
	}
	return s.components[at], nil
}

// Remove stops a component and forgets it.
func (s *Set) Remove(ctx context.Context, name string) error {
	component, err := s.Get(name)
	if err != nil {
		return err
	}
	err = component.Stop(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.components = slices.DeleteFunc(s.components, func(c *Component) bool { return c == component })
	return err
}

// List describes all components.
func (s *Set) List() []Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	infos := make([]Info, 0, len(s.components))
	for _, component := range s.components {
		infos = append(infos, component.Info())
	}
	return infos
}

// Close stops everything, tier by tier from the highest, and refuses additions from then on.
func (s *Set) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	components := slices.Clone(s.components)
	s.mu.Unlock()
	slices.Reverse(components)
	slices.SortStableFunc(components, func(a, b *Component) int { return cmp.Compare(b.spec.Tier, a.spec.Tier) })
	var failures []error
	for len(components) > 0 {
		tier := components[0].spec.Tier
		end := slices.IndexFunc(components, func(c *Component) bool { return c.spec.Tier != tier })
		if end < 0 {
			end = len(components)
		}
		failures = append(failures, stopAll(ctx, components[:end]))
		components = components[end:]
	}
	return errors.Join(failures...)
}

func stopAll(ctx context.Context, components []*Component) error {
	failures := make([]error, len(components))
	var group sync.WaitGroup
	for i, component := range components {
		group.Go(func() { failures[i] = component.Stop(ctx) })
	}
	group.Wait()
	return errors.Join(failures...)
}

func (s *Set) find(name string) int {
	return slices.IndexFunc(s.components, func(c *Component) bool { return c.spec.Name == name })
}
