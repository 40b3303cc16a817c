// Package kubeconfig writes client configuration files with one cluster, one user and one context.
package kubeconfig

import (
	"encoding/json"
	"fmt"

	"coxswain.dev/controlplane/internal/pki"
)

type file struct {
	APIVersion     string         `json:"apiVersion"`
	Kind           string         `json:"kind"`
	CurrentContext string         `json:"current-context"`
	Clusters       []namedCluster `json:"clusters"`
	Contexts       []namedContext `json:"contexts"`
	Users          []namedUser    `json:"users"`
}

type namedCluster struct {
	Name    string  `json:"name"`
	Cluster cluster `json:"cluster"`
}

type cluster struct {
	Server string `json:"server"`
	CAData []byte `json:"certificate-authority-data"`
}

type namedContext struct {
	Name    string  `json:"name"`
	Context context `json:"context"`
}

type context struct {
	Cluster string `json:"cluster"`
	User    string `json:"user"`
}

type namedUser struct {
	Name string `json:"name"`
	User user   `json:"user"`
}

type user struct {
	CertData []byte `json:"client-certificate-data"`
	KeyData  []byte `json:"client-key-data"`
}

// Render gives a kubeconfig that holds its credentials, so that the file can be copied alone. It is written as JSON,
// which every reader of kubeconfigs takes because JSON is YAML.
func Render(server string, ca []byte, userName string, credentials pki.Pair) ([]byte, error) {
	const clusterName = "controlplane"
	contextName := userName + "@" + clusterName
	out, err := json.MarshalIndent(file{
		APIVersion:     "v1",
		Kind:           "Config",
		CurrentContext: contextName,
		Clusters:       []namedCluster{{clusterName, cluster{Server: server, CAData: ca}}},
		Contexts:       []namedContext{{contextName, context{Cluster: clusterName, User: userName}}},
		Users:          []namedUser{{userName, user{CertData: credentials.Cert, KeyData: credentials.Key}}},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of %s: %w", userName, err)
	}
	return append(out, '\n'), nil
}
