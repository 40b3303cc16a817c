package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shell is a component that runs a script and is ready when the script has made the file $READY.
func shell(t *testing.T, name, script string) Spec {
	t.Helper()
	marker := filepath.Join(t.TempDir(), name+".ready")
	return Spec{
		Name: name, Program: "/bin/sh", Args: []string{"-c", script}, Env: []string{"READY=" + marker},
		LogFile: filepath.Join(t.TempDir(), name+".log"),
		Ready: func(context.Context) error {
			_, err := os.Stat(marker)
			return err
		},
		ReadyWithin: 10 * time.Second, StopWithin: 10 * time.Second,
	}
}

const serve = `touch "$READY"; while :; do sleep 0.05; done`

func add(t *testing.T, set *Set, spec Spec) *Component {
	t.Helper()
	component, err := set.Add(spec)
	if err != nil {
		t.Fatal(err)
	}
	return component
}

func newSet(t *testing.T) *Set {
	t.Helper()
	set := NewSet(nil)
	t.Cleanup(func() {
		if err := set.Close(context.Background()); err != nil && !errors.Is(err, ErrKilled) {
			t.Error(err)
		}
	})
	return set
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestLifeOfAComponent(t *testing.T) {
	ctx := t.Context()
	component := add(t, newSet(t), shell(t, "server", serve))
	if state := component.Info().State; state != Stopped {
		t.Errorf("before its start it is %s", state)
	}
	if err := component.Start(ctx); err != nil {
		t.Fatal(err)
	}
	first := component.Info()
	if first.State != Ready || first.Starts != 1 || !alive(first.PID) {
		t.Errorf("after its start it is %+v", first)
	}
	if err := component.Start(ctx); !errors.Is(err, ErrRunning) {
		t.Errorf("a second start gives %v", err)
	}
	if err := component.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if info := component.Info(); info.State != Stopped || !strings.Contains(info.Exit, "killed") || alive(first.PID) {
		t.Errorf("after a kill it is %+v", info)
	}
	if err := component.Kill(ctx); !errors.Is(err, ErrNotRunning) {
		t.Errorf("a second kill gives %v", err)
	}
	if err := component.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if info := component.Info(); info.State != Ready || info.Starts != 2 || info.PID == first.PID {
		t.Errorf("after a restart it is %+v", info)
	}
	if err := component.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if err := component.Stop(ctx); err != nil {
		t.Errorf("a second stop gives %v", err)
	}
}

func TestAPausedComponentCanBeResumedAndStopped(t *testing.T) {
	ctx := t.Context()
	component := add(t, newSet(t), shell(t, "server", serve))
	if err := component.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := component.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	pid := component.Info().PID
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(stat), ") T ") || component.Info().State != Paused {
		t.Errorf("not paused: %s, %s", component.Info().State, stat)
	}
	if err := component.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	if state := component.Info().State; state != Ready {
		t.Errorf("after a resume it is %s", state)
	}
	if err := component.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	if err := component.Stop(ctx); err != nil {
		t.Errorf("a paused component can't be stopped: %v", err)
	}
}

func TestAComponentThatEndsEarlyShowsItsLog(t *testing.T) {
	component := add(t, newSet(t), shell(t, "broken", "echo bad flag; exit 3"))
	err := component.Start(t.Context())
	var failure *StartError
	if !errors.As(err, &failure) || !strings.Contains(failure.LogTail, "bad flag") ||
		!strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error is %v", err)
	}
	if state := component.Info().State; state != Exited {
		t.Errorf("it is %s", state)
	}
}

func TestAComponentThatIsNeverReadyIsAnError(t *testing.T) {
	spec := shell(t, "slow", "while :; do sleep 0.05; done")
	spec.ReadyWithin = 100 * time.Millisecond
	component := add(t, newSet(t), spec)
	if err := component.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "is not ready") {
		t.Errorf("error is %v", err)
	}
	if state := component.Info().State; state != Starting {
		t.Errorf("it is %s", state)
	}
}

func TestAStubbornComponentIsKilledAndSaysSo(t *testing.T) {
	spec := shell(t, "stubborn", `trap '' TERM; `+serve)
	spec.StopWithin = 100 * time.Millisecond
	component := add(t, newSet(t), spec)
	if err := component.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	pid := component.Info().PID
	if err := component.Stop(t.Context()); !errors.Is(err, ErrKilled) {
		t.Errorf("stop gives %v", err)
	}
	if alive(pid) {
		t.Error("it is still there")
	}
	if err := component.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := component.Restart(t.Context()); err != nil {
		t.Errorf("restart gives %v", err)
	}
}

func TestOnlyUnexpectedEndsAreReported(t *testing.T) {
	ended := make(chan Info, 2)
	set := NewSet(func(info Info) { ended <- info })
	stopped := add(t, set, shell(t, "stopped", serve))
	if err := stopped.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := stopped.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	crashed := add(t, set, shell(t, "crashed", `touch "$READY"; read -r _ < "$READY.go"; exit 7`))
	pipe := strings.TrimPrefix(crashed.spec.Env[0], "READY=") + ".go"
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := crashed.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(pipe, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if info := <-ended; info.Name != "crashed" || !strings.Contains(info.Exit, "exit status 7") {
		t.Errorf("reported %+v", info)
	}
	if len(ended) != 0 {
		t.Errorf("also reported %+v", <-ended)
	}
}

func TestCloseStopsHigherTiersFirstAndRefusesMore(t *testing.T) {
	order := filepath.Join(t.TempDir(), "order")
	set := NewSet(nil)
	for tier, name := range []string{"store", "server", "client"} {
		script := fmt.Sprintf(`trap 'echo %s >>%s; exit 0' TERM; %s`, name, order, serve)
		spec := shell(t, name, script)
		spec.Tier = tier
		if err := add(t, set, spec).Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := set.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(order)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != "client\nserver\nstore\n" {
		t.Errorf("stopped in the order %q", text)
	}
	if _, err := set.Add(shell(t, "late", serve)); !errors.Is(err, ErrClosed) {
		t.Errorf("an addition after the end gives %v", err)
	}
}

func TestNamesAreUniqueAndKnown(t *testing.T) {
	set := newSet(t)
	add(t, set, shell(t, "one", serve))
	if _, err := set.Add(shell(t, "one", serve)); !errors.Is(err, ErrExists) {
		t.Errorf("a second one gives %v", err)
	}
	if _, err := set.Get("two"); !errors.Is(err, ErrUnknown) {
		t.Errorf("two gives %v", err)
	}
	if err := set.Remove(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if infos := set.List(); len(infos) != 0 {
		t.Errorf("still there: %+v", infos)
	}
}

func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for content, want := range map[string]string{
		"":                                      "",
		"a\n":                                   "a",
		"a\nb\nc\n":                             "b\nc",
		"a\nb\nc":                               "b\nc",
		strings.Repeat("x", 40000) + "\ny\nz\n": "y\nz",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := Tail(path, 2); got != want {
			t.Errorf("tail of %.20q is %q", content, got)
		}
	}
}
