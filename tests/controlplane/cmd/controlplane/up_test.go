package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"coxswain.dev/controlplane/internal/cluster"
)

// binDirVariable names the directory that build.sh prints. Tests on real components are skipped without it.
const binDirVariable = "COXSWAIN_CONTROLPLANE_BIN"

// started is a launcher that is up.
type started struct {
	t      *testing.T
	cmd    *exec.Cmd
	report cluster.Report
}

// start runs the launcher that was built and waits for its line.
func start(t *testing.T, args ...string) *started {
	t.Helper()
	bin := os.Getenv(binDirVariable)
	if bin == "" {
		t.Skip(binDirVariable + " is not set")
	}
	dir, err := os.MkdirTemp("", "up") // the test's own directory may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	flags := append([]string{"up", "--dir", filepath.Join(dir, "cluster"), "--stdin-lifetime"}, args...)
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "controlplane"), flags...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait() // a test that cares has waited itself
	})
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		t.Fatalf("the launcher printed no line: %v", err)
	}
	s := &started{t: t, cmd: cmd}
	if err := json.Unmarshal(line, &s.report); err != nil || !s.report.Ready {
		t.Fatalf("the launcher printed %s: %v", line, err)
	}
	return s
}

// tool runs a binary of the control plane to its end, and gives its output.
func (s *started) tool(name string, args ...string) string {
	s.t.Helper()
	out, err := exec.CommandContext(s.t.Context(), filepath.Join(s.report.BinDir, name), args...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (s *started) kubectl(args ...string) string {
	s.t.Helper()
	return s.tool("kubectl", append([]string{"--kubeconfig", s.report.Kubeconfigs["admin"]}, args...)...)
}

func (s *started) ctl(args ...string) string {
	s.t.Helper()
	return s.tool("controlplane", append([]string{"ctl", "--dir", s.report.Dir}, args...)...)
}

// awaitGone fails if a process of the control plane is still there after a while.
func (s *started) awaitGone() {
	s.t.Helper()
	for name, pid := range s.report.PIDs {
		deadline := time.Now().Add(10 * time.Second)
		for syscall.Kill(pid, 0) == nil {
			if time.Now().After(deadline) {
				s.t.Fatalf("%s (pid %d) has outlived its launcher", name, pid)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

func TestPodsRunWithoutAManagerAndComponentsRestart(t *testing.T) {
	s := start(t, "--nodes=2", "--audit")
	s.kubectl("create", "serviceaccount", "default")
	s.kubectl("run", "first", "--image=nginx")
	s.kubectl("wait", "pod/first", "--for=condition=Ready", "--timeout=60s")

	s.ctl("kill", "kube-apiserver")
	s.ctl("start", "kube-apiserver")
	s.ctl("restart", "etcd")
	s.kubectl("run", "second", "--image=nginx")
	s.kubectl("wait", "pod/second", "--for=condition=Ready", "--timeout=60s")

	s.ctl("identity", "stranger")
	who := s.tool("kubectl", "--kubeconfig", filepath.Join(s.report.Dir, "stranger.kubeconfig"), "auth", "whoami")
	if !strings.Contains(who, "stranger") {
		t.Errorf("the further identity is %s", who)
	}
	if text, err := os.ReadFile(s.report.AuditLog); err != nil || !strings.Contains(string(text), `"/api/v1/namespaces/default/pods`) {
		t.Errorf("the audit log has no pod: %v", err)
	}
	s.tool("controlplane", "down", "--dir", s.report.Dir)
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("the launcher ended with %v", err)
	}
	s.awaitGone()
}

func TestGoManagersRunBesideAnotherControlPlane(t *testing.T) {
	first := start(t, "--nodes=2", "--with-go-manager")
	second := start(t, "--nodes=1")
	if first.report.Server == second.report.Server {
		t.Fatal("two control planes share an address")
	}
	first.kubectl("create", "deployment", "web", "--image=nginx", "--replicas=5")
	first.kubectl("rollout", "status", "deployment/web", "--timeout=90s")
	second.ctl("add-manager", "go-2", "kube-controller-manager")
	second.kubectl("create", "deployment", "web", "--image=nginx", "--replicas=5")
	second.kubectl("rollout", "status", "deployment/web", "--timeout=90s")
}

func TestNothingOutlivesAKilledLauncher(t *testing.T) {
	s := start(t, "--nodes=1", "--with-go-manager")
	s.ctl("pause", "kube-scheduler") // a frozen process must go too
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	s.awaitGone()
	if pid, err := cluster.Owner(s.report.Dir); err != nil || pid != 0 {
		t.Errorf("the directory is still owned by %d, %v", pid, err)
	}
}
