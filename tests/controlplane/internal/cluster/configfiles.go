package cluster

import (
	"encoding/json"
	"fmt"
)

const (
	auditPolicyFile = "audit-policy.json"
	tracingFile     = "tracing.json"
	schedulerFile   = "scheduler.json"
)

// object is a configuration file's content.
type object map[string]any

// writeConfigFiles writes the files that components are configured with beside their flags.
func (c *Cluster) writeConfigFiles() error {
	files := map[string]object{
		schedulerFile: {
			"apiVersion": "kubescheduler.config.k8s.io/v1",
			"kind":       "KubeSchedulerConfiguration",
			// The scheduler must never be what a test of a controller waits for.
			"clientConnection": object{
				"kubeconfig": c.options.path("scheduler.kubeconfig"), "qps": 1000, "burst": 2000,
				"contentType": "application/vnd.kubernetes.protobuf",
			},
			"leaderElection": object{"leaderElect": false},
		},
	}
	if c.options.Audit {
		files[auditPolicyFile] = object{
			"apiVersion": "audit.k8s.io/v1",
			"kind":       "Policy",
			"omitStages": []string{"RequestReceived"},
			"rules":      []object{{"level": "Metadata"}},
		}
	}
	if c.options.TracingEndpoint != "" {
		files[tracingFile] = object{
			"apiVersion":             "apiserver.config.k8s.io/v1",
			"kind":                   "TracingConfiguration",
			"endpoint":               c.options.TracingEndpoint,
			"samplingRatePerMillion": c.options.SamplingPerMillion,
		}
	}
	for name, content := range files {
		text, err := json.MarshalIndent(content, "", "  ")
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := writeAtomically(c.options.path(configDir, name), append(text, '\n')); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (c *Cluster) auditLog() string { return c.options.path(logDir, "audit.log") }
