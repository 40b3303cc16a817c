package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"coxswain.dev/controlplane/internal/kubeconfig"
	"coxswain.dev/controlplane/internal/pki"
)

// identity is a user that the cluster's authority vouches for.
type identity struct {
	name   string
	user   string
	groups []string
}

// identities get a kubeconfig each, NAME.kubeconfig.
var identities = []identity{
	{name: "admin", user: "admin", groups: []string{"system:masters"}},
	{name: "controller-manager", user: "system:kube-controller-manager"},
	{name: "scheduler", user: "system:kube-scheduler"},
	{name: "kwok", user: kwokUser},
}

// credentials are the authorities of a cluster and the files made from them.
type credentials struct {
	dir        string
	cluster    *pki.Authority
	frontProxy *pki.Authority
	admin      pki.Pair
}

// KeyPair names a certificate's file and its key's.
type KeyPair struct {
	CertFile string `json:"certFile"`
	KeyFile  string `json:"keyFile"`
}

// newCredentials makes all certificates and keys and writes them into dir.
func newCredentials(dir string) (*credentials, error) {
	c := &credentials{dir: dir}
	var group sync.WaitGroup
	var keysErr error
	group.Go(func() { keysErr = c.writeServiceAccountKeys() }) // the slow one
	err := c.writeCertificates()
	group.Wait()
	if err != nil {
		return nil, err
	}
	return c, keysErr
}

func (c *credentials) writeServiceAccountKeys() error {
	private, public, err := pki.ServiceAccountKeys()
	if err != nil {
		return err
	}
	if err := c.write("sa.key", private); err != nil {
		return err
	}
	return c.write("sa.pub", public)
}

func (c *credentials) writeCertificates() error {
	var err error
	if c.cluster, err = pki.NewAuthority("coxswain-controlplane-ca"); err != nil {
		return err
	}
	if c.frontProxy, err = pki.NewAuthority("coxswain-controlplane-front-proxy-ca"); err != nil {
		return err
	}
	if c.admin, err = c.cluster.Client("admin", "system:masters"); err != nil {
		return err
	}
	loopback := []string{"localhost", "127.0.0.1", "::1"}
	apiServerHosts := append([]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local", "10.96.0.1"}, loopback...)
	issues := map[string]func() (pki.Pair, error){
		"ca":                 func() (pki.Pair, error) { return c.cluster.Pair, nil },
		"front-proxy-ca":     func() (pki.Pair, error) { return c.frontProxy.Pair, nil },
		"front-proxy-client": func() (pki.Pair, error) { return c.frontProxy.Client(frontProxyUser) },
		"apiserver":          func() (pki.Pair, error) { return c.cluster.Serving("kube-apiserver", apiServerHosts...) },
		"scheduler":          func() (pki.Pair, error) { return c.cluster.Serving("kube-scheduler", loopback...) },
		"controller-manager": func() (pki.Pair, error) { return c.cluster.Serving("kube-controller-manager", loopback...) },
	}
	for name, issue := range issues {
		pair, err := issue()
		if err != nil {
			return err
		}
		if err := c.write(name+".crt", pair.Cert); err != nil {
			return err
		}
		if err := c.write(name+".key", pair.Key); err != nil {
			return err
		}
	}
	return nil
}

// writeKubeconfig issues a client certificate and writes the kubeconfig that holds it.
func (c *credentials) writeKubeconfig(path, server string, who identity) error {
	pair, err := c.cluster.Client(who.user, who.groups...)
	if err != nil {
		return err
	}
	content, err := kubeconfig.Render(server, c.cluster.Cert, who.user, pair)
	if err != nil {
		return err
	}
	if err := writeAtomically(path, content); err != nil {
		return fmt.Errorf("kubeconfig of %s: %w", who.name, err)
	}
	return nil
}

func (c *credentials) write(name string, content []byte) error {
	if err := os.WriteFile(c.file(name), content, 0o600); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (c *credentials) file(name string) string { return filepath.Join(c.dir, name) }

func (c *credentials) pair(name string) KeyPair {
	return KeyPair{CertFile: c.file(name + ".crt"), KeyFile: c.file(name + ".key")}
}
