package cluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

const (
	lockFile    = "lock"
	socketFile  = "control.sock"
	clusterFile = "cluster.json"
	logDir      = "logs"
	pkiDir      = "pki"
	configDir   = "config"
	etcdDir     = "etcd"

	// maxSocketPath is what fits into a unix socket's address, with its closing zero.
	maxSocketPath = 107
)

// claimed is a directory that no other launcher can use while this one lives.
type claimed struct {
	dir  string
	lock *os.File
}

// claim takes the directory: it is made if it does not exist, cleared of an earlier control plane's files, and refused if
// a launcher lives in it or if it holds anything else.
func claim(dir string) (*claimed, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("--dir: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("--dir: %w", err)
	}
	path := filepath.Join(dir, lockFile)
	if _, err := os.Stat(path); len(entries) > 0 && errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("--dir: %s holds files that are not a control plane's", dir)
	}
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--dir: %w", err)
	}
	// The kernel drops the lock with the process, so one that was killed leaves no stale lock.
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("--dir: a control plane is running in %s", dir)
		}
		return nil, fmt.Errorf("--dir: %s: %w", path, err)
	}
	c := &claimed{dir: dir, lock: lock}
	if err := errors.Join(c.sign(), c.clear()); err != nil {
		lock.Close()
		return nil, err
	}
	return c, nil
}

// sign writes the launcher's process id into the lock file, which says who to stop for as long as the lock is held.
func (c *claimed) sign() error {
	if err := c.lock.Truncate(0); err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	if _, err := c.lock.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	return nil
}

// clear removes what an earlier control plane left and makes the empty folders.
func (c *claimed) clear() error {
	kubeconfigs, err := filepath.Glob(filepath.Join(c.dir, "*.kubeconfig"))
	if err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	stale := kubeconfigs
	for _, name := range []string{socketFile, clusterFile, logDir, pkiDir, configDir, etcdDir} {
		stale = append(stale, filepath.Join(c.dir, name))
	}
	for _, path := range stale {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("--dir: %w", err)
		}
	}
	for _, name := range []string{logDir, pkiDir, configDir, etcdDir} {
		if err := os.Mkdir(filepath.Join(c.dir, name), 0o700); err != nil {
			return fmt.Errorf("--dir: %w", err)
		}
	}
	return nil
}

// release gives the directory up: everything in it goes if remove is set, else the logs and the evidence stay, without
// what would let others believe that the control plane still runs.
func (c *claimed) release(remove bool) error {
	defer c.lock.Close()
	if remove {
		return os.RemoveAll(c.dir)
	}
	var failures []error
	for _, name := range []string{socketFile, clusterFile} {
		if err := os.Remove(filepath.Join(c.dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			failures = append(failures, err)
		}
	}
	return errors.Join(append(failures, os.RemoveAll(filepath.Join(c.dir, etcdDir)))...)
}

// Owner gives the process id of the launcher that lives in the directory, or 0 if none does.
func Owner(dir string) (int, error) {
	lock, err := os.Open(filepath.Join(dir, lockFile))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if err == nil {
		return 0, nil
	}
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return 0, err
	}
	text, err := io.ReadAll(lock)
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("%s does not say which process holds it: %q", lock.Name(), text)
	}
	return pid, nil
}

// writeAtomically makes a file appear whole or not at all.
func writeAtomically(path string, content []byte) error {
	temporary := path + ".tmp"
	if err := os.WriteFile(temporary, content, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}
