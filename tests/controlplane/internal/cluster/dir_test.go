package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestADirectoryHasOneOwnerAtATime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "dir")
	first, err := claim(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := claim(dir); err == nil || !strings.Contains(err.Error(), "running") {
		t.Errorf("a second claim gives %v", err)
	}
	if pid, err := Owner(dir); err != nil || pid != os.Getpid() {
		t.Errorf("owner is %d, %v", pid, err)
	}
	log := filepath.Join(dir, logDir, "etcd.log")
	if err := os.WriteFile(log, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := first.release(false); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(log); err != nil {
		t.Errorf("logs are not kept: %v", err)
	}
	if pid, err := Owner(dir); err != nil || pid != 0 {
		t.Errorf("after the release, owner is %d, %v", pid, err)
	}
	second, err := claim(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(log); !os.IsNotExist(err) {
		t.Errorf("an earlier control plane's log is still there: %v", err)
	}
	if err := second.release(true); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory was not removed: %v", err)
	}
}

func TestForeignFilesAreNeverTouched(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "thesis.txt")
	if err := os.WriteFile(file, []byte("words"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := claim(dir); err == nil {
		t.Error("a directory with foreign files was taken")
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "words" {
		t.Errorf("the file is now %q, %v", text, err)
	}
}

func TestNobodyOwnsADirectoryThatIsNotThere(t *testing.T) {
	if pid, err := Owner(filepath.Join(t.TempDir(), "none")); err != nil || pid != 0 {
		t.Errorf("owner is %d, %v", pid, err)
	}
}
