// Package ports hands out free TCP ports on the loopback address and keeps them reserved.
//
// A component's port must still be free when the component is started again after a kill, possibly minutes later. So
// ports are taken from below the kernel's ephemeral range, where no outgoing connection can land on them, and are kept
// from other launchers on the machine by holding an abstract unix socket named after the port. The kernel drops
// these names with the process: nothing is left on disk, however the launcher ends.
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
)

const (
	lowest = 20000
	// defaultEphemeral is Linux's own default, used where the kernel's setting can't be read.
	defaultEphemeral = 32768
	attempts         = 2000
)

// Pool hands out ports. The zero value is ready to use.
type Pool struct {
	mu   sync.Mutex
	held map[int]net.Listener
}

// Get reserves a free port until Put or Close.
func (p *Pool) Get() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	low, high := portRange()
	for range attempts {
		port := low + rand.IntN(high-low)
		if _, ours := p.held[port]; ours {
			continue
		}
		reservation, err := net.Listen("unix", "@coxswain-controlplane-port-"+strconv.Itoa(port))
		if err != nil {
			continue // another launcher has it
		}
		if !free(port) {
			reservation.Close()
			continue
		}
		if p.held == nil {
			p.held = map[int]net.Listener{}
		}
		p.held[port] = reservation
		return port, nil
	}
	return 0, fmt.Errorf("no free port between %d and %d on 127.0.0.1", low, high)
}

// Put gives a port back.
func (p *Pool) Put(port int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if reservation, ok := p.held[port]; ok {
		reservation.Close()
		delete(p.held, port)
	}
}

// Close gives all ports back.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var failures []error
	for port, reservation := range p.held {
		failures = append(failures, reservation.Close())
		delete(p.held, port)
	}
	return errors.Join(failures...)
}

// free says whether a server could listen on the port now.
func free(port int) bool {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return listener.Close() == nil
}

// portRange is where ports are looked for: under the ephemeral range if there is room, else in the default place.
func portRange() (low, high int) {
	high = defaultEphemeral
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		if fields := strings.Fields(string(text)); len(fields) == 2 {
			if first, err := strconv.Atoi(fields[0]); err == nil && first >= lowest+1000 {
				high = first
			}
		}
	}
	return lowest, high
}
