package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	kwokUser = "kwok"

	nodeWorkers      = 8
	nodePollInterval = 100 * time.Millisecond
	nodesReadyWithin = 2 * time.Minute
	notReadyTaint    = "node.kubernetes.io/not-ready"
)

// createKwokRole grants kwok what kubelets do and no more: report the state of nodes and pods, hold node leases, and
// delete pods whose containers have ended.
func (c *Cluster) createKwokRole(ctx context.Context) error {
	rule := func(group string, resources []string, verbs ...string) object {
		return object{"apiGroups": []string{group}, "resources": resources, "verbs": verbs}
	}
	const roles, api = "/apis/rbac.authorization.k8s.io/v1/", "rbac.authorization.k8s.io"
	role := object{
		"metadata": object{"name": "controlplane:kwok"},
		"rules": []object{
			rule("", []string{"nodes"}, "get", "list", "watch"),
			rule("", []string{"pods"}, "get", "list", "watch", "update", "patch", "delete"),
			rule("", []string{"nodes/status", "pods/status"}, "update", "patch"),
			rule("", []string{"events"}, "create", "patch", "update"),
			rule("coordination.k8s.io", []string{"leases"}, "get", "list", "watch", "create", "update", "patch"),
		},
	}
	binding := object{
		"metadata": object{"name": "controlplane:kwok"},
		"roleRef":  object{"apiGroup": api, "kind": "ClusterRole", "name": "controlplane:kwok"},
		"subjects": []object{{"apiGroup": api, "kind": "User", "name": kwokUser}},
	}
	if err := c.api.create(ctx, roles+"clusterroles", role); err != nil {
		return fmt.Errorf("role of kwok: %w", err)
	}
	if err := c.api.create(ctx, roles+"clusterrolebindings", binding); err != nil {
		return fmt.Errorf("role of kwok: %w", err)
	}
	return nil
}

func newNode(index int) object {
	name := fmt.Sprintf("node-%d", index)
	capacity := object{"cpu": "64", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "500"}
	return object{
		"metadata": object{
			"name": name,
			"labels": map[string]string{
				"kubernetes.io/hostname":        name,
				"kubernetes.io/os":              "linux",
				"kubernetes.io/arch":            "amd64",
				"topology.kubernetes.io/region": "region-1",
				"topology.kubernetes.io/zone":   fmt.Sprintf("zone-%d", index%3+1),
				"type":                          "kwok",
			},
		},
		"status": object{"capacity": capacity, "allocatable": capacity},
	}
}

// createNodes registers nodes as kubelets would.
func (c *Cluster) createNodes(ctx context.Context, count int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	indexes := make(chan int)
	var group sync.WaitGroup
	for range min(nodeWorkers, count) {
		group.Go(func() {
			for index := range indexes {
				if err := c.api.create(ctx, "/api/v1/nodes", newNode(index)); err != nil {
					cancel(err)
				}
			}
		})
	}
	for index := range count {
		indexes <- index
	}
	close(indexes)
	group.Wait()
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("nodes: %w", err)
	}
	return nil
}

// node is what is read of one. Taints are kept whole, so that those which stay are written back unchanged.
type node struct {
	Metadata struct {
		Name            string `json:"name"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Spec struct {
		Taints []json.RawMessage `json:"taints"`
	} `json:"spec"`
	Status struct {
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

func (n *node) ready() bool {
	for _, condition := range n.Status.Conditions {
		if condition.Type == "Ready" {
			return condition.Status == "True"
		}
	}
	return false
}

// taintsBesides gives the taints with another key, and whether any has this one.
func (n *node) taintsBesides(key string) (others []json.RawMessage, found bool, err error) {
	others = []json.RawMessage{}
	for _, raw := range n.Spec.Taints {
		var taint struct {
			Key string `json:"key"`
		}
		if err := json.Unmarshal(raw, &taint); err != nil {
			return nil, false, fmt.Errorf("taint of node %s: %w", n.Metadata.Name, err)
		}
		if taint.Key == key {
			found = true
		} else {
			others = append(others, raw)
		}
	}
	return others, found, nil
}

// settleNodes waits until the first count nodes are ready and free of the taint that admission puts on every new node.
// Taking it off is a controller's work; a control plane without a manager would have nowhere to run pods.
func (c *Cluster) settleNodes(ctx context.Context, count int) error {
	ctx, cancel := context.WithTimeout(ctx, nodesReadyWithin)
	defer cancel()
	ticker := time.NewTicker(nodePollInterval)
	defer ticker.Stop()
	for {
		settled, err := c.settleOnce(ctx)
		if err != nil {
			return err
		}
		if settled >= count {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d nodes are ready: %w", settled, count, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

func (c *Cluster) settleOnce(ctx context.Context) (settled int, err error) {
	var nodes struct {
		Items []node `json:"items"`
	}
	if err := c.api.do(ctx, http.MethodGet, "/api/v1/nodes", "", nil, &nodes); err != nil {
		return 0, fmt.Errorf("nodes: %w", err)
	}
	for _, n := range nodes.Items {
		if !n.ready() {
			continue
		}
		others, found, err := n.taintsBesides(notReadyTaint)
		if err != nil {
			return 0, err
		}
		if found {
			patch := object{
				"metadata": object{"resourceVersion": n.Metadata.ResourceVersion},
				"spec":     object{"taints": others},
			}
			path := "/api/v1/nodes/" + n.Metadata.Name
			err := c.api.do(ctx, http.MethodPatch, path, "application/merge-patch+json", patch, nil)
			if hasStatus(err, http.StatusConflict) {
				continue // seen again in the next round
			}
			if err != nil {
				return 0, fmt.Errorf("taint of node %s: %w", n.Metadata.Name, err)
			}
		}
		settled++
	}
	return settled, nil
}
