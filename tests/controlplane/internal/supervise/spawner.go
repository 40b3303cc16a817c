// Package supervise runs the processes of a control plane: it starts, signals, stops and restarts them, says what became
// of them, and ties their lives to its own. It knows nothing of Kubernetes.
package supervise

import (
	"os/exec"
	"runtime"
	"syscall"
)

// Spawner starts processes that the kernel kills when this process ends, however it ends.
//
// The kernel sends a parent-death signal when the *thread* that started the child exits, and the Go runtime ends
// threads as it pleases. So all children are started from one goroutine that keeps its thread for ever.
type Spawner struct {
	requests chan request
}

type request struct {
	cmd  *exec.Cmd
	done chan error
}

// NewSpawner starts the thread. It is kept until the process ends: its end would kill all children.
func NewSpawner() *Spawner {
	spawner := &Spawner{requests: make(chan request)}
	go spawner.serve()
	return spawner
}

func (s *Spawner) serve() {
	runtime.LockOSThread()
	for r := range s.requests {
		r.done <- r.cmd.Start()
	}
}

// Start starts cmd in a process group of its own, so that a terminal's Ctrl-C reaches the launcher alone.
func (s *Spawner) Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	r := request{cmd: cmd, done: make(chan error, 1)}
	s.requests <- r
	return <-r.done
}
