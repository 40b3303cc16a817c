package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Report is what users of a control plane are told about it: one line of JSON on the launcher's standard output, and
// the same in cluster.json. Paths are absolute.
type Report struct {
	Ready       bool   `json:"ready"`
	Dir         string `json:"dir"`
	LauncherPID int    `json:"launcherPid"`
	Socket      string `json:"controlSocket"`
	BinDir      string `json:"binDir"`
	LogDir      string `json:"logDir"`
	ProtoDir    string `json:"protoDir"`
	Nodes       int    `json:"nodes"`

	Server string `json:"server"`
	// CAFile is the cluster's authority. It signs the API server's and the clients' certificates alike, and
	// ClusterSigning lets a manager and tests sign more.
	CAFile         string            `json:"caFile"`
	ClientCAFile   string            `json:"clientCAFile"`
	ClusterSigning KeyPair           `json:"clusterSigning"`
	FrontProxyCA   string            `json:"frontProxyCAFile"`
	FrontProxy     KeyPair           `json:"frontProxyClient"`
	Kubeconfigs    map[string]string `json:"kubeconfigs"`
	SAKeyFile      string            `json:"saKeyFile"`
	SAPubFile      string            `json:"saPubFile"`
	// ManagerServing is a serving certificate for a controller manager on the loopback address, and ManagerArgs its
	// whole command line without --secure-port.
	ManagerServing KeyPair  `json:"managerServing"`
	ManagerArgs    []string `json:"managerArgs"`

	Etcd string `json:"etcd"`
	// AuditLog is empty without --audit.
	AuditLog string `json:"auditLog"`

	// URLs and PIDs are by component; PIDs are those at the time of writing, and change when a component is restarted.
	URLs map[string]string `json:"urls"`
	PIDs map[string]int    `json:"pids"`
}

// Report describes the control plane.
func (c *Cluster) Report() Report {
	pki := c.credentials
	report := Report{
		Ready: true, Dir: c.options.Dir, LauncherPID: os.Getpid(), Socket: c.SocketPath(), BinDir: c.options.BinDir,
		LogDir: c.options.path(logDir), ProtoDir: filepath.Join(filepath.Dir(c.options.BinDir), "protos"),
		Nodes: c.options.Nodes, Server: c.api.server,
		CAFile: pki.file("ca.crt"), ClientCAFile: pki.file("ca.crt"), ClusterSigning: pki.pair("ca"),
		FrontProxyCA: pki.file("front-proxy-ca.crt"), FrontProxy: pki.pair("front-proxy-client"),
		Kubeconfigs: map[string]string{}, SAKeyFile: pki.file("sa.key"), SAPubFile: pki.file("sa.pub"),
		ManagerServing: pki.pair("controller-manager"), ManagerArgs: c.ManagerArgs(),
		Etcd: c.etcdURL, URLs: map[string]string{}, PIDs: map[string]int{},
	}
	if c.options.Audit {
		report.AuditLog = c.auditLog()
	}
	for _, who := range identities {
		report.Kubeconfigs[who.name] = c.options.path(who.name + ".kubeconfig")
	}
	for _, info := range c.set.List() {
		report.URLs[info.Name], report.PIDs[info.Name] = info.URL, info.PID
	}
	return report
}

// WriteReport writes cluster.json and gives the report as one line.
func (c *Cluster) WriteReport() ([]byte, error) {
	line, err := json.Marshal(c.Report())
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	line = append(line, '\n')
	if err := writeAtomically(c.options.path(clusterFile), line); err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	c.progress.say("ready")
	return line, nil
}

// ReadReport finds the control plane that runs in a directory.
func ReadReport(dir string) (Report, error) {
	var report Report
	text, err := os.ReadFile(filepath.Join(dir, clusterFile))
	if err != nil {
		return report, fmt.Errorf("no control plane is up in %s: %w", dir, err)
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return report, fmt.Errorf("%s: %w", clusterFile, err)
	}
	return report, nil
}
