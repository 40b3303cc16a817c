package cluster

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"coxswain.dev/controlplane/internal/supervise"
)

const (
	serviceRange   = "10.96.0.0/16"
	podRange       = "10.244.0.0/16"
	issuer         = "https://kubernetes.default.svc.cluster.local"
	frontProxyUser = "front-proxy-client"

	leaseSeconds = 40
	readyWithin  = 2 * time.Minute
	stopWithin   = 15 * time.Second
)

// Tiers of the stop: clients first, then the API server, then its store.
const (
	tierStore = iota
	tierServer
	tierClients
)

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// spec fills in what all components have in common.
func (c *Cluster) spec(name string, tier int, flags map[string]string) supervise.Spec {
	return supervise.Spec{
		Name:        name,
		Program:     filepath.Join(c.options.BinDir, name),
		Args:        arguments(flags, c.options.Args[name]),
		LogFile:     c.logFile(name),
		ReadyWithin: readyWithin,
		StopWithin:  stopWithin,
		Tier:        tier,
	}
}

func (c *Cluster) logFile(name string) string { return c.options.path(logDir, name+".log") }

// etcdSpec gives up durability, which a throw-away cluster has no use for, and elects itself quickly.
func (c *Cluster) etcdSpec(clientPort, peerPort int) supervise.Spec {
	client, peer := "http://"+loopback(clientPort), "http://"+loopback(peerPort)
	spec := c.spec(Etcd, tierStore, map[string]string{
		"name":                        "controlplane",
		"data-dir":                    c.options.path(etcdDir),
		"listen-client-urls":          client,
		"advertise-client-urls":       client,
		"listen-peer-urls":            peer,
		"initial-advertise-peer-urls": peer,
		"initial-cluster":             "controlplane=" + peer,
		"unsafe-no-fsync":             "true",
		"quota-backend-bytes":         strconv.Itoa(8 << 30),
		"heartbeat-interval":          "50",
		"election-timeout":            "250",
	})
	spec.URL = client
	spec.Ready = getProbe(plainClient(), client+"/readyz")
	return spec
}

func (c *Cluster) apiServerSpec(port int, etcdURL string) supervise.Spec {
	pki := c.credentials
	flags := map[string]string{
		"bind-address":                       "127.0.0.1",
		"secure-port":                        strconv.Itoa(port),
		"advertise-address":                  "127.0.0.1",
		"endpoint-reconciler-type":           "none", // a loopback address can't be an endpoint
		"etcd-servers":                       etcdURL,
		"storage-media-type":                 "application/vnd.kubernetes.protobuf",
		"tls-cert-file":                      pki.file("apiserver.crt"),
		"tls-private-key-file":               pki.file("apiserver.key"),
		"client-ca-file":                     pki.file("ca.crt"),
		"authorization-mode":                 "Node,RBAC",
		"enable-admission-plugins":           "NodeRestriction",
		"allow-privileged":                   "true",
		"service-cluster-ip-range":           serviceRange,
		"service-account-issuer":             issuer,
		"service-account-key-file":           pki.file("sa.pub"),
		"service-account-signing-key-file":   pki.file("sa.key"),
		"proxy-client-cert-file":             pki.file("front-proxy-client.crt"),
		"proxy-client-key-file":              pki.file("front-proxy-client.key"),
		"requestheader-client-ca-file":       pki.file("front-proxy-ca.crt"),
		"requestheader-allowed-names":        frontProxyUser,
		"requestheader-username-headers":     "X-Remote-User",
		"requestheader-group-headers":        "X-Remote-Group",
		"requestheader-extra-headers-prefix": "X-Remote-Extra-",
	}
	if c.options.Audit {
		flags["audit-log-path"] = c.auditLog()
		flags["audit-policy-file"] = c.options.path(configDir, auditPolicyFile)
		flags["audit-log-maxsize"] = "8192" // megabytes: one file, so that no reader misses a rotated part
	}
	if c.options.TracingEndpoint != "" {
		flags["tracing-config-file"] = c.options.path(configDir, tracingFile)
	}
	c.setFeatureGates(flags)
	spec := c.spec(APIServer, tierServer, flags)
	spec.URL = "https://" + loopback(port)
	spec.Ready = func(ctx probeContext) error { return c.api.Ready(ctx) }
	return spec
}

func (c *Cluster) schedulerSpec(port int) supervise.Spec {
	pki, config := c.credentials, c.options.path("scheduler.kubeconfig")
	flags := map[string]string{
		"config":                    c.options.path(configDir, schedulerFile),
		"authentication-kubeconfig": config,
		"authorization-kubeconfig":  config,
		"bind-address":              "127.0.0.1",
		"secure-port":               strconv.Itoa(port),
		"tls-cert-file":             pki.file("scheduler.crt"),
		"tls-private-key-file":      pki.file("scheduler.key"),
	}
	c.setFeatureGates(flags)
	spec := c.spec(Scheduler, tierClients, flags)
	spec.URL = "https://" + loopback(port)
	spec.Ready = getProbe(c.tlsClient, spec.URL+"/readyz")
	return spec
}

func (c *Cluster) kwokSpec(port int, stages []string) supervise.Spec {
	spec := c.spec(Kwok, tierClients, map[string]string{
		"kubeconfig":                  c.options.path("kwok.kubeconfig"),
		"manage-all-nodes":            "true",
		"node-lease-duration-seconds": strconv.Itoa(leaseSeconds),
		"cidr":                        podRange,
		"node-ip":                     "10.0.0.1",
		"server-address":              loopback(port),
	})
	for _, stage := range stages {
		spec.Args = append(spec.Args, "--config="+stage)
	}
	spec.URL = "http://" + loopback(port)
	spec.Ready = getProbe(plainClient(), spec.URL+"/healthz")
	return spec
}

// ManagerArgs is the command line of a controller manager for this cluster, without its port: the same for the Go one
// and for one that takes its place.
func (c *Cluster) ManagerArgs() []string {
	pki, config := c.credentials, c.options.path("controller-manager.kubeconfig")
	flags := map[string]string{
		"kubeconfig":                       config,
		"authentication-kubeconfig":        config,
		"authorization-kubeconfig":         config,
		"bind-address":                     "127.0.0.1",
		"tls-cert-file":                    pki.file("controller-manager.crt"),
		"tls-private-key-file":             pki.file("controller-manager.key"),
		"client-ca-file":                   pki.file("ca.crt"),
		"requestheader-client-ca-file":     pki.file("front-proxy-ca.crt"),
		"use-service-account-credentials":  "true",
		"root-ca-file":                     pki.file("ca.crt"),
		"service-account-private-key-file": pki.file("sa.key"),
		"cluster-signing-cert-file":        pki.file("ca.crt"),
		"cluster-signing-key-file":         pki.file("ca.key"),
		"service-cluster-ip-range":         serviceRange,
		"leader-elect":                     "true",
	}
	c.setFeatureGates(flags)
	return arguments(flags, nil)
}

// managerSpec runs a controller manager with the cluster's command line on a port of its own.
func (c *Cluster) managerSpec(name, program string, port int, extra []string) supervise.Spec {
	spec := c.spec(name, tierClients, nil)
	spec.Program = program
	spec.Args = append(c.ManagerArgs(), "--secure-port="+strconv.Itoa(port))
	spec.Args = append(spec.Args, extra...)
	spec.URL = "https://" + loopback(port)
	spec.Ready = getProbe(c.tlsClient, spec.URL+"/healthz")
	return spec
}

func (c *Cluster) setFeatureGates(flags map[string]string) {
	if c.options.FeatureGates != "" {
		flags["feature-gates"] = c.options.FeatureGates
	}
}

// Addition asks for a component beside those of the control plane.
type Addition struct {
	Name string `json:"name"`
	// Program is a path, or the name of a binary of the control plane.
	Program string   `json:"program"`
	Args    []string `json:"args"`
	Env     []string `json:"env"`
	// Manager says that the program is a controller manager: it gets the cluster's usual flags and a free port before
	// Args, and is ready when its /healthz says so.
	Manager bool `json:"manager"`
	// ReadyURL is polled to see that a program which is not a Manager is ready; without it, it is so when it runs.
	ReadyURL string `json:"readyURL"`
}

// Add puts a further component into the control plane. It is not started yet.
func (c *Cluster) Add(a Addition) (*supervise.Component, error) {
	if a.Name == "" || a.Name != filepath.Base(a.Name) || a.Program == "" {
		return nil, fmt.Errorf("%w: a component needs a program, and a name without slashes", ErrInvalid)
	}
	program := a.Program
	if filepath.Base(program) == program {
		program = filepath.Join(c.options.BinDir, program)
	}
	var spec supervise.Spec
	if a.Manager {
		port, err := c.ports.Get()
		if err != nil {
			return nil, err
		}
		spec = c.managerSpec(a.Name, program, port, a.Args)
	} else {
		spec = c.spec(a.Name, tierClients, nil)
		spec.Program, spec.Args = program, a.Args
		if a.ReadyURL != "" {
			spec.URL = a.ReadyURL
			spec.Ready = getProbe(c.tlsClient, a.ReadyURL)
		}
	}
	spec.Env = a.Env
	return c.set.Add(spec)
}
