package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// binaries makes a directory that looks like the build's result.
func binaries(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range []string{Etcd, APIServer, Scheduler, Kwok, GoManager} {
		write(t, filepath.Join(root, "bin", name))
	}
	for _, stage := range []string{"node/fast/a", "node/heartbeat-with-lease/b", "pod/fast/c", "pod/general/d",
		"node/chaos/e", "pod/chaos/f"} {
		write(t, filepath.Join(root, "stages", stage+".yaml"))
	}
	return filepath.Join(root, "bin")
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o700); err != nil {
		t.Fatal(err)
	}
}

func valid(t *testing.T) Options {
	return Options{Dir: "/tmp/x", BinDir: binaries(t), Nodes: 3, Kwok: true, Scheduler: true, PodStages: "fast"}
}

func TestOptionsThatCannotWorkAreRefusedByName(t *testing.T) {
	for flag, change := range map[string]func(*Options){
		"--dir":                          func(o *Options) { o.Dir = "" },
		"unix socket":                    func(o *Options) { o.Dir = "/" + strings.Repeat("d", 120) },
		"--nodes":                        func(o *Options) { o.Nodes = -1 },
		"--kwok":                         func(o *Options) { o.Kwok = false },
		"--pod-stages":                   func(o *Options) { o.PodStages = "slow" },
		"--tracing-sampling-per-million": func(o *Options) { o.SamplingPerMillion = 2_000_000 },
		"--bin-dir":                      func(o *Options) { o.BinDir = "/nonexistent" },
	} {
		options := valid(t)
		change(&options)
		if err := options.Validate(); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s: %v", flag, err)
		}
	}
	options := valid(t)
	if err := options.Validate(); err != nil {
		t.Error(err)
	}
}

func TestStagesFollowTheOptions(t *testing.T) {
	options := valid(t)
	names := func() string {
		files, err := options.stages()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, file := range files {
			names = append(names, strings.TrimSuffix(filepath.Base(file), ".yaml"))
		}
		return strings.Join(names, "")
	}
	if got := names(); got != "abc" {
		t.Errorf("fast: %s", got)
	}
	options.PodStages, options.FaultStages, options.ExtraStages = "general", true, []string{"own.yaml"}
	if got := names(); got != "abdefown" {
		t.Errorf("general with faults: %s", got)
	}
	options.BinDir = t.TempDir()
	if _, err := options.stages(); err == nil {
		t.Error("missing stage files are no error")
	}
}

func TestAdditionsComeLastSoThatTheyWin(t *testing.T) {
	got := arguments(map[string]string{"b": "2", "a": "1"}, []string{"a=3", "--c=4"})
	if want := []string{"--a=1", "--b=2", "--a=3", "--c=4"}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}
