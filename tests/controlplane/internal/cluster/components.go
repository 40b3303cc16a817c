package cluster

import (
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
	stopWithin   = 10 * time.Second
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
		"bind-address":             "127.0.0.1",
		"secure-port":              strconv.Itoa(port),
		"advertise-address":        "127.0.0.1",
		"endpoint-reconciler-type": "none", // a loopback address can't be an endpoint
		"etcd-servers":             etcdURL,
		"storage-media-type":       "application/vnd.kubernetes.protobuf",
		"tls-cert-file":            pki.file("apiserver.crt"),
		"tls-private-key-file":     pki.file("apiserver.key"),
		"client-ca-file":           pki.file("ca.crt"),
		"authorization-mode":       "Node,RBAC",
		"enable-admission-plugins": "NodeRestriction",
		"allow-privileged":         "true",
		// Without it, a server told to stop waits for its clients to end their watches, which they don't.
		"shutdown-watch-termination-grace-period": "1s",
		"service-cluster-ip-range":                serviceRange,
		"service-account-issuer":                  issuer,
		"service-account-key-file":                pki.file("sa.pub"),
		"service-account-signing-key-file":        pki.file("sa.key"),
		"proxy-client-cert-file":                  pki.file("front-proxy-client.crt"),
		"proxy-client-key-file":                   pki.file("front-proxy-client.key"),
		"requestheader-client-ca-file":            pki.file("front-proxy-ca.crt"),
		"requestheader-allowed-names":             frontProxyUser,
		"requestheader-username-headers":          "X-Remote-User",
		"requestheader-group-headers":             "X-Remote-Group",
		"requestheader-extra-headers-prefix":      "X-Remote-Extra-",
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
