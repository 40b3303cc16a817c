package cluster

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestOnlyTheAdmissionTaintIsTakenOffAndOnlyFromReadyNodes(t *testing.T) {
	const list = `{"items":[
		{"metadata":{"name":"ready","resourceVersion":"7"},
		 "spec":{"taints":[{"key":"node.kubernetes.io/not-ready","effect":"NoSchedule"},
		                   {"key":"own","effect":"NoExecute","futureField":1}]},
		 "status":{"conditions":[{"type":"MemoryPressure","status":"False"},{"type":"Ready","status":"True"}]}},
		{"metadata":{"name":"settled","resourceVersion":"8"},"spec":{},
		 "status":{"conditions":[{"type":"Ready","status":"True"}]}},
		{"metadata":{"name":"new","resourceVersion":"9"},
		 "spec":{"taints":[{"key":"node.kubernetes.io/not-ready","effect":"NoSchedule"}]},"status":{}}]}`
	patches := map[string]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte(list))
			return
		}
		var body json.RawMessage
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		patches[r.URL.Path] = string(body)
		_, _ = w.Write([]byte("{}"))
	}))
	defer server.Close()
	c := &Cluster{api: &apiClient{http: server.Client(), server: server.URL}}
	settled, err := c.settleOnce(t.Context())
	if err != nil || settled != 2 {
		t.Errorf("%d nodes settled, %v", settled, err)
	}
	const want = `{"metadata":{"resourceVersion":"7"},"spec":{"taints":[{"key":"own","effect":"NoExecute","futureField":1}]}}`
	if len(patches) != 1 || patches["/api/v1/nodes/ready"] != want {
		t.Errorf("patches are %v", patches)
	}
}

func TestAConflictIsLeftToTheNextRound(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			w.WriteHeader(http.StatusConflict)
			return
		}
		_, _ = w.Write([]byte(`{"items":[{"metadata":{"name":"n"},
			"spec":{"taints":[{"key":"node.kubernetes.io/not-ready"}]},
			"status":{"conditions":[{"type":"Ready","status":"True"}]}}]}`))
	}))
	defer server.Close()
	c := &Cluster{api: &apiClient{http: server.Client(), server: server.URL}}
	if settled, err := c.settleOnce(t.Context()); err != nil || settled != 0 {
		t.Errorf("%d nodes settled, %v", settled, err)
	}
}
