// Package cluster puts one control plane together: its directory, certificates, components, roles and nodes, and the
// order in which they come up. What a component is told on its command line is decided here and nowhere else.
package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Options say what kind of control plane is wanted.
type Options struct {
	// Dir holds everything the control plane writes. RemoveDir deletes it at the end.
	Dir       string
	RemoveDir bool
	// BinDir holds the binaries; the stage files are beside it.
	BinDir string

	Nodes     int
	Kwok      bool
	Scheduler bool
	// GoManager runs the Go kube-controller-manager too.
	GoManager bool

	// Audit logs the metadata of every request to the API server.
	Audit bool
	// TracingEndpoint is the OTLP gRPC endpoint that the API server sends spans to; SamplingPerMillion is how many of
	// the requests that carry no sampling decision it samples.
	TracingEndpoint    string
	SamplingPerMillion int

	FeatureGates string
	// PodStages names kwok's set of pod stages: "fast" (at once) or "general" (with delays, as containers have).
	PodStages string
	// FaultStages adds the stages by which labels on pods and nodes ask for failures.
	FaultStages bool
	// ExtraStages are further stage files.
	ExtraStages []string

	// Args are additions to the command lines, by component.
	Args map[string][]string
}

// Names of the components.
const (
	Etcd      = "etcd"
	APIServer = "kube-apiserver"
	Scheduler = "kube-scheduler"
	Kwok      = "kwok"
	GoManager = "kube-controller-manager"
)

// Validate completes the options and refuses what cannot work.
func (o *Options) Validate() error {
	if o.Dir == "" {
		return fmt.Errorf("--dir is required")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	o.Dir = dir
	if path := o.path(socketFile); len(path) > maxSocketPath {
		return fmt.Errorf("--dir: %s is too long for a unix socket (%d characters at most)", path, maxSocketPath)
	}
	if o.Nodes < 0 {
		return fmt.Errorf("--nodes: %d is negative", o.Nodes)
	}
	if o.Nodes > 0 && !o.Kwok {
		return fmt.Errorf("--nodes: nodes become ready only with --kwok")
	}
	if !slices.Contains([]string{"fast", "general"}, o.PodStages) {
		return fmt.Errorf("--pod-stages: %q is neither fast nor general", o.PodStages)
	}
	if o.SamplingPerMillion < 0 || o.SamplingPerMillion > 1_000_000 {
		return fmt.Errorf("--tracing-sampling-per-million: %d is not between 0 and 1000000", o.SamplingPerMillion)
	}
	return o.checkBinaries()
}

func (o *Options) checkBinaries() error {
	if o.BinDir == "" {
		executable, err := os.Executable()
		if err != nil {
			return fmt.Errorf("--bin-dir: %w", err)
		}
		o.BinDir = filepath.Dir(executable)
	}
	wanted := map[string]bool{Etcd: true, APIServer: true, Scheduler: o.Scheduler, Kwok: o.Kwok, GoManager: o.GoManager}
	for name, needed := range wanted {
		if _, err := os.Stat(filepath.Join(o.BinDir, name)); needed && err != nil {
			return fmt.Errorf("--bin-dir: %w (build.sh makes the binaries)", err)
		}
	}
	return nil
}

// path is a place in the control plane's directory.
func (o *Options) path(elements ...string) string {
	return filepath.Join(append([]string{o.Dir}, elements...)...)
}

// stages lists the files that kwok is configured with.
func (o *Options) stages() ([]string, error) {
	sets := []string{"node/fast", "node/heartbeat-with-lease", "pod/" + o.PodStages}
	if o.FaultStages {
		sets = append(sets, "node/chaos", "pod/chaos")
	}
	var files []string
	for _, set := range sets {
		pattern := filepath.Join(o.BinDir, "..", "stages", set, "*.yaml")
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("stage files: %w", err)
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("no stage files at %s", pattern)
		}
		files = append(files, found...)
	}
	return append(files, o.ExtraStages...), nil
}

// arguments are flags in the form --name=value, in the order of their names so that logs can be compared.
func arguments(flags map[string]string, extra []string) []string {
	args := make([]string, 0, len(flags)+len(extra))
	for name, value := range flags {
		args = append(args, "--"+name+"="+value)
	}
	slices.Sort(args)
	for _, addition := range extra {
		args = append(args, "--"+strings.TrimPrefix(addition, "--"))
	}
	return args
}
