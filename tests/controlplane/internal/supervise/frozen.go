package supervise

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const frozenPoll = time.Millisecond

// awaitFrozen waits until no thread of the process runs any more: the signal is delivered to them one by one.
func (c *Component) awaitFrozen(ctx context.Context, r *run) error {
	ticker := time.NewTicker(frozenPoll)
	defer ticker.Stop()
	for !frozen(r.process.Pid) {
		select {
		case <-r.done:
			return fmt.Errorf("%s %w", c.spec.Name, ErrNotRunning)
		case <-ctx.Done():
			return fmt.Errorf("%s is not frozen yet: %w", c.spec.Name, ctx.Err())
		case <-ticker.C:
		}
	}
	return nil
}

// frozen says whether all threads of a process are stopped.
func frozen(pid int) bool {
	threads, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "stat"))
	if err != nil || len(threads) == 0 {
		return false
	}
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			return false // it has just ended; the next look will not see it
		}
		// The state follows the program's name, which is in parentheses and may hold anything.
		_, state, found := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ")
		if !found || !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return true
}
