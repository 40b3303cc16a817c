package control

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"coxswain.dev/controlplane/internal/cluster"
	"coxswain.dev/controlplane/internal/supervise"
)

// fake is a cluster whose components are shells.
type fake struct {
	set *supervise.Set
	dir string
}

func (f *fake) Report() cluster.Report                        { return cluster.Report{Ready: true, Dir: f.dir} }
func (f *fake) Components() *supervise.Set                    { return f.set }
func (f *fake) Remove(ctx context.Context, name string) error { return f.set.Remove(ctx, name) }

func (f *fake) Add(a cluster.Addition) (*supervise.Component, error) {
	return f.set.Add(supervise.Spec{Name: a.Name, Program: a.Program, Args: a.Args,
		LogFile: filepath.Join(f.dir, a.Name+".log"), ReadyWithin: 10 * time.Second, StopWithin: 10 * time.Second})
}

func (f *fake) AddIdentity(name, _ string, _ []string) (string, error) {
	if name == "" {
		return "", cluster.ErrInvalid
	}
	return filepath.Join(f.dir, name+".kubeconfig"), nil
}

func serve(t *testing.T) (client *Client, socket string, shutdowns chan struct{}) {
	t.Helper()
	dir, err := os.MkdirTemp("", "control") // the test's own directory may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{set: supervise.NewSet(nil), dir: dir}
	shutdowns = make(chan struct{}, 1)
	socket = filepath.Join(dir, "control.sock")
	server, err := Serve(socket, f, func() { shutdowns <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Close()
		if err := f.set.Close(context.Background()); err != nil {
			t.Error(err)
		}
		os.RemoveAll(dir)
	})
	return NewClient(socket), socket, shutdowns
}

func sleeper(name string) cluster.Addition {
	return cluster.Addition{Name: name, Program: "/bin/sleep", Args: []string{"600"}}
}

func TestAComponentIsAddedControlledAndRemoved(t *testing.T) {
	client, _, _ := serve(t)
	call := func(method, path string, body any) string {
		t.Helper()
		text, err := client.Call(t.Context(), method, path, body)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		return string(text)
	}
	call(http.MethodPost, "/components", sleeper("one"))
	for _, step := range []struct {
		operation string
		state     supervise.State
	}{
		{"pause", supervise.Paused}, {"resume", supervise.Ready}, {"kill", supervise.Stopped},
		{"start", supervise.Ready}, {"restart", supervise.Ready}, {"stop", supervise.Stopped},
	} {
		var info supervise.Info
		answer := call(http.MethodPost, "/components/one/"+step.operation, nil)
		if err := json.Unmarshal([]byte(answer), &info); err != nil || info.State != step.state {
			t.Errorf("after %s: %s, %v", step.operation, answer, err)
		}
	}
	if list := call(http.MethodGet, "/components", nil); !strings.Contains(list, `"name":"one"`) {
		t.Errorf("list is %s", list)
	}
	call(http.MethodDelete, "/components/one", nil)
	if list := call(http.MethodGet, "/components", nil); strings.TrimSpace(list) != "[]" {
		t.Errorf("list is %s", list)
	}
}

func TestWhatCannotBeDoneIsRefused(t *testing.T) {
	client, _, _ := serve(t)
	if _, err := client.Call(t.Context(), http.MethodPost, "/components", sleeper("one")); err != nil {
		t.Fatal(err)
	}
	for _, refused := range []struct {
		method, path string
		body         any
		want         string
	}{
		{http.MethodPost, "/components", sleeper("one"), "of this name"},
		{http.MethodPost, "/components/one/start", nil, "running already"},
		{http.MethodPost, "/components/two/start", nil, "no such component"},
		{http.MethodPost, "/components/one/explode", nil, "no such operation"},
		{http.MethodDelete, "/components/two", nil, "no such component"},
		{http.MethodPost, "/identities", Identity{}, "invalid"},
		{http.MethodPost, "/identities", map[string]string{"nmae": "x"}, "unknown field"},
		{http.MethodPost, "/components", cluster.Addition{Name: "bad", Program: "/nonexistent"}, "can't be started"},
	} {
		_, err := client.Call(t.Context(), refused.method, refused.path, refused.body)
		if err == nil || !strings.Contains(err.Error(), refused.want) {
			t.Errorf("%s %s: %v", refused.method, refused.path, err)
		}
	}
	if _, err := client.Call(t.Context(), http.MethodGet, "/components/bad", nil); err == nil {
		t.Error("a component that could not be started was kept")
	}
}

func TestOnlyTheUserCanOpenTheSocket(t *testing.T) {
	_, socket, _ := serve(t)
	info, err := os.Stat(socket)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o600 {
		t.Errorf("mode is %o", mode)
	}
}

func TestShutdownIsAnsweredBeforeItHappens(t *testing.T) {
	client, _, shutdowns := serve(t)
	if _, err := client.Call(t.Context(), http.MethodPost, "/shutdown", nil); err != nil {
		t.Error(err)
	}
	<-shutdowns
}
