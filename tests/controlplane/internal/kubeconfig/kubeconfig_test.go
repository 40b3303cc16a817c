package kubeconfig

import (
	"encoding/base64"
	"encoding/json"
	"testing"

	"coxswain.dev/controlplane/internal/pki"
)

func TestTheCurrentContextLeadsToServerAndCredentials(t *testing.T) {
	text, err := Render("https://127.0.0.1:6443", []byte("ca"), "admin", pki.Pair{Cert: []byte("cert"), Key: []byte("key")})
	if err != nil {
		t.Fatal(err)
	}
	var config file
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	if len(config.Contexts) != 1 || len(config.Clusters) != 1 || len(config.Users) != 1 {
		t.Fatalf("more than one of something: %s", text)
	}
	chosen := config.Contexts[0]
	if chosen.Name != config.CurrentContext || chosen.Context.Cluster != config.Clusters[0].Name ||
		chosen.Context.User != config.Users[0].Name {
		t.Errorf("names do not match: %s", text)
	}
	if config.Clusters[0].Cluster.Server != "https://127.0.0.1:6443" || string(config.Users[0].User.KeyData) != "key" {
		t.Errorf("wrong content: %s", text)
	}
	// Readers of kubeconfigs expect these to be in base64.
	var raw struct {
		Clusters []struct {
			Cluster map[string]string `json:"cluster"`
		} `json:"clusters"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		t.Fatal(err)
	}
	if got := raw.Clusters[0].Cluster["certificate-authority-data"]; got != base64.StdEncoding.EncodeToString([]byte("ca")) {
		t.Errorf("authority is %q", got)
	}
}
