// Package control is the launcher's HTTP API on a unix socket, and its client. It lets tests break a control plane on
// purpose: kill, freeze, stop and restart a component while the others go on.
package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"

	"coxswain.dev/controlplane/internal/cluster"
	"coxswain.dev/controlplane/internal/supervise"
)

const maxBody = 1 << 20

// Cluster is what the API controls.
type Cluster interface {
	Report() cluster.Report
	Components() *supervise.Set
	Add(cluster.Addition) (*supervise.Component, error)
	Remove(ctx context.Context, name string) error
	AddIdentity(name, user string, groups []string) (kubeconfig string, err error)
}

// Server serves the API.
type Server struct {
	http     http.Server
	listener net.Listener
}

// Identity asks for a kubeconfig, NAME.kubeconfig, of a further user. User is the name where it is empty.
type Identity struct {
	Name   string   `json:"name"`
	User   string   `json:"user"`
	Groups []string `json:"groups"`
}

// IdentityMade answers it.
type IdentityMade struct {
	Kubeconfig string `json:"kubeconfig"`
}

// Failure is the body of every answer that is not a success.
type Failure struct {
	Error string `json:"error"`
}

type operation func(*supervise.Component, context.Context) error

var operations = map[string]operation{
	"kill":    (*supervise.Component).Kill,
	"stop":    (*supervise.Component).Stop,
	"start":   (*supervise.Component).Start,
	"restart": (*supervise.Component).Restart,
	"pause":   (*supervise.Component).Pause,
	"resume":  (*supervise.Component).Resume,
}

// Serve starts serving on a unix socket that only this user can open. shutdown is called when the API is asked to end
// the control plane; it must not wait for the end.
func Serve(path string, controlled Cluster, shutdown func()) (*Server, error) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		listener.Close()
		return nil, fmt.Errorf("control socket: %w", err)
	}
	server := &Server{http: http.Server{Handler: Handler(controlled, shutdown)}, listener: listener}
	go func() {
		// It ends only when Close makes it.
		_ = server.http.Serve(listener)
	}()
	return server, nil
}

// Close ends the server; requests in flight are cut off.
func (s *Server) Close() error { return s.http.Close() }

// Handler is the API.
func Handler(controlled Cluster, shutdown func()) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /cluster", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, controlled.Report())
	})
	mux.HandleFunc("GET /components", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, controlled.Components().List())
	})
	mux.HandleFunc("POST /components", func(w http.ResponseWriter, r *http.Request) { add(w, r, controlled) })
	mux.HandleFunc("GET /components/{name}", func(w http.ResponseWriter, r *http.Request) {
		component, err := controlled.Components().Get(r.PathValue("name"))
		if err != nil {
			refuse(w, err)
			return
		}
		answer(w, http.StatusOK, component.Info())
	})
	mux.HandleFunc("DELETE /components/{name}", func(w http.ResponseWriter, r *http.Request) {
		if err := controlled.Remove(r.Context(), r.PathValue("name")); err != nil {
			refuse(w, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /components/{name}/{operation}", func(w http.ResponseWriter, r *http.Request) {
		operate(w, r, controlled.Components())
	})
	mux.HandleFunc("POST /identities", func(w http.ResponseWriter, r *http.Request) {
		var wanted Identity
		if !read(w, r, &wanted) {
			return
		}
		path, err := controlled.AddIdentity(wanted.Name, wanted.User, wanted.Groups)
		if err != nil {
			refuse(w, err)
			return
		}
		answer(w, http.StatusCreated, IdentityMade{Kubeconfig: path})
	})
	mux.HandleFunc("POST /shutdown", func(w http.ResponseWriter, _ *http.Request) {
		// The answer is sent whole before the server that sends it is closed.
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusAccepted)
		if err := http.NewResponseController(w).Flush(); err != nil {
			fmt.Fprintln(os.Stderr, "controlplane: answer to shutdown:", err)
		}
		shutdown()
	})
	return mux
}

// add puts a component in and starts it. One that can't be started is not kept.
func add(w http.ResponseWriter, r *http.Request, controlled Cluster) {
	var addition cluster.Addition
	if !read(w, r, &addition) {
		return
	}
	component, err := controlled.Add(addition)
	if err != nil {
		refuse(w, err)
		return
	}
	if err := component.Start(r.Context()); err != nil {
		refuse(w, errors.Join(err, controlled.Remove(r.Context(), addition.Name)))
		return
	}
	answer(w, http.StatusCreated, component.Info())
}

func operate(w http.ResponseWriter, r *http.Request, set *supervise.Set) {
	component, err := set.Get(r.PathValue("name"))
	if err != nil {
		refuse(w, err)
		return
	}
	run, known := operations[r.PathValue("operation")]
	if !known {
		answer(w, http.StatusNotFound, Failure{Error: "no such operation: " + r.PathValue("operation")})
		return
	}
	if err := run(component, r.Context()); err != nil {
		refuse(w, err)
		return
	}
	answer(w, http.StatusOK, component.Info())
}

func read(w http.ResponseWriter, r *http.Request, into any) bool {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		refuse(w, fmt.Errorf("%w: %w", cluster.ErrInvalid, err))
		return false
	}
	return true
}

func refuse(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	switch {
	case errors.Is(err, supervise.ErrUnknown):
		code = http.StatusNotFound
	case errors.Is(err, cluster.ErrInvalid):
		code = http.StatusBadRequest
	case errors.Is(err, supervise.ErrExists), errors.Is(err, supervise.ErrRunning),
		errors.Is(err, supervise.ErrNotRunning), errors.Is(err, supervise.ErrClosed):
		code = http.StatusConflict
	}
	answer(w, code, Failure{Error: err.Error()})
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// A client that went away needs no answer.
	_ = json.NewEncoder(w).Encode(body)
}
