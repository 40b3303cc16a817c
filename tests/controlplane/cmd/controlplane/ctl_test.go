package main

import (
	"net/http"
	"reflect"
	"testing"

	"coxswain.dev/controlplane/internal/cluster"
	"coxswain.dev/controlplane/internal/control"
)

func TestCommandsBecomeRequests(t *testing.T) {
	for _, test := range []struct {
		args []string
		want command
	}{
		{[]string{"list"}, command{method: http.MethodGet, path: "/components", table: true}},
		{[]string{"restart", "etcd"}, command{method: http.MethodPost, path: "/components/etcd/restart"}},
		{[]string{"remove", "two"}, command{method: http.MethodDelete, path: "/components/two"}},
		{[]string{"add", "two", "kube-controller-manager", "--v=2"}, command{
			method: http.MethodPost, path: "/components",
			body: cluster.Addition{Name: "two", Program: "kube-controller-manager", Args: []string{"--v=2"}},
		}},
		{[]string{"add-manager", "own", "/bin/coxswain"}, command{
			method: http.MethodPost, path: "/components",
			body: cluster.Addition{Name: "own", Program: "/bin/coxswain", Args: []string{}, Manager: true},
		}},
		{[]string{"identity", "viewer", "a", "b"}, command{
			method: http.MethodPost, path: "/identities",
			body: control.Identity{Name: "viewer", Groups: []string{"a", "b"}},
		}},
	} {
		got, err := parseCommand(test.args)
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%v: %+v, %v", test.args, got, err)
		}
	}
}

func TestCommandsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, args := range [][]string{{"explode"}, {"list", "all"}, {"kill"}, {"kill", "a", "b"}, {"add", "name"}, {"identity"}} {
		if request, err := parseCommand(args); err == nil {
			t.Errorf("%v became %+v", args, request)
		}
	}
}
