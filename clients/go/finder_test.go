package coxswain

import (
	"cmp"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func read(t *testing.T, path string, into any) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(content, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestTrustIsThatOfTheCommandLine(t *testing.T) {
	var rows []struct {
		Facts     []string `json:"facts"`
		Voucher   *voucher `json:"voucher"`
		SendToken bool     `json:"sendToken"`
		Name      nameRule `json:"name"`
	}
	read(t, "testdata/trust.json", &rows)
	if len(rows) != 128 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, row := range rows {
		has := func(fact string) bool { return slices.Contains(row.Facts, fact) }
		facts := facts{
			authority: has("authority"), trustAnnounced: has("trustAnnounced"), named: has("named"),
			announced: has("announced"), clusterAuthority: has("clusterAuthority"), token: has("token"),
			certificate: has("certificate"),
		}
		decided, ok := facts.decide()
		if ok != (row.Voucher != nil) || decided.sendToken != row.SendToken {
			t.Errorf("%v: %v, %t", row, decided, ok)
		}
		if ok && (decided.voucher != *row.Voucher || decided.name != row.Name) {
			t.Errorf("%v: %v", row, decided)
		}
	}
}

func TestReplicasAreThoseOfTheCommandLine(t *testing.T) {
	var file struct {
		Now   time.Time `json:"now"`
		Cases []struct {
			About      string        `json:"about"`
			Leases     []leaseObject `json:"leases"`
			Holder     string        `json:"holder"`
			Lease      string        `json:"lease"`
			Candidates []struct {
				Identity, Address, Authority string
				Leads                        bool
			} `json:"candidates"`
			PassedOver []string `json:"passedOver"`
		} `json:"cases"`
	}
	read(t, "testdata/leases.json", &file)
	for _, each := range file.Cases {
		var leases []Lease
		for _, lease := range each.Leases {
			leases = append(leases, lease.lease())
		}
		found := choose(leases, cmp.Or(each.Lease, "kube-system/kube-controller-manager"), each.Holder, file.Now)
		var wanted []Replica
		for _, candidate := range each.Candidates {
			wanted = append(wanted, Replica{
				Name:     "coxswain-replica-" + candidate.Identity,
				Identity: candidate.Identity, Address: candidate.Address, Authority: candidate.Authority, Leads: candidate.Leads,
			})
		}
		if !slices.Equal(found.Candidates, wanted) || !slices.Equal(found.PassedOver, each.PassedOver) {
			t.Errorf("%s: %+v", each.About, found)
		}
	}
}

// serveLeases serves Leases to who shows the token "secret".
func serveLeases(t *testing.T, pages map[string]string) (server, ca string) {
	t.Helper()
	api := httptest.NewTLSServer(http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		page, found := pages[request.URL.RequestURI()]
		switch {
		case request.Header.Get("Authorization") != "Bearer secret":
			answer.WriteHeader(http.StatusForbidden)
			_, _ = answer.Write([]byte(`{"kind": "Status", "message": "leases is forbidden"}`))
		case found:
			_, _ = answer.Write([]byte(page))
		case strings.HasPrefix(request.URL.Path, "/elsewhere/"):
			http.Redirect(answer, request, "https://localhost:1/", http.StatusFound)
		default:
			answer.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(api.Close)
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})
	return api.URL, write(t, t.TempDir(), "ca.pem", block)
}

const leasesPath = "/apis/coordination.k8s.io/v1/namespaces/"

func TestReplicasAreFoundByALeaseOfAnotherName(t *testing.T) {
	server, ca := serveLeases(t, map[string]string{
		leasesPath + "kube-system/leases?labelSelector=coxswain.dev%2Fcomponent%3Dreplica": `{"items": [{
			"metadata": {"name": "coxswain-replica-1", "annotations": {"coxswain.dev/admin-address": "10.0.0.2:10257"}},
			"spec": {"holderIdentity": "b", "renewTime": "2026-11-21T15:30:00.000000Z", "leaseDurationSeconds": 40}}]}`,
		leasesPath + "managers/leases/coxswain": `{"spec": {"holderIdentity": "b"}}`,
	})
	leases, err := NewAPIServer(server, Options{CAFile: ca, TokenFile: write(t, t.TempDir(), "token", []byte("secret\n"))})
	if err != nil {
		t.Fatal(err)
	}
	finder := Finder{Leases: leases, now: func() time.Time { return time.Date(2026, 11, 21, 15, 30, 30, 0, time.UTC) }}
	replica := Replica{Name: "coxswain-replica-1", Identity: "b", Address: "10.0.0.2:10257"}
	if found, err := finder.Replicas(t.Context()); err != nil || !slices.Equal(found.Candidates, []Replica{replica}) {
		t.Errorf("by the usual name nobody leads: %+v, %v", found, err)
	}
	finder.LeaseName, finder.LeaseNamespace = "coxswain", "managers"
	replica.Leads = true
	if found, err := finder.Replicas(t.Context()); err != nil || !slices.Equal(found.Candidates, []Replica{replica}) {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestAnAPIServerThatDoesNotAnswerSaysWhy(t *testing.T) {
	server, ca := serveLeases(t, nil)
	for token, wanted := range map[string]string{"secret": "404", "other": "coxswain-admin-discovery"} {
		leases, err := NewAPIServer(server, Options{CAFile: ca, Token: token})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := leases.ListLeases(t.Context(), "kube-system", ""); err == nil || !strings.Contains(err.Error(), wanted) {
			t.Errorf("%s: %v", token, err)
		}
		if _, err := leases.GetLease(t.Context(), "kube-system", "x"); !errors.Is(err, ErrNoLease) {
			t.Errorf("%s: %v", token, err)
		}
	}
	elsewhere, err := NewAPIServer(server+"/elsewhere", Options{CAFile: ca, Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := elsewhere.ListLeases(t.Context(), "kube-system", ""); err == nil || !strings.Contains(err.Error(), "302") {
		t.Errorf("the token was taken elsewhere: %v", err)
	}
	for _, server := range []string{"http://localhost:1", "localhost:1", "https://", "https://jane:secret@localhost:1"} {
		if _, err := NewAPIServer(server, Options{}); err == nil || !strings.Contains(err.Error(), "expected https://HOST[:PORT]") {
			t.Errorf("%s: %v", server, err)
		}
	}
}

// Whoever may write Leases can have a named replica name any address as the leader's.
func TestATokenDoesNotGoOnToWhomANamedReplicaNames(t *testing.T) {
	finder := Finder{Addresses: []string{"admin.test:443"}, Options: Options{Token: "secret"}}
	client, err := finder.Connect(Replica{Address: "admin.test:443"})
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
	for _, other := range []string{"leader.test:443", "admin.test:444"} {
		if _, err := finder.Connect(Replica{Address: other}); !errors.Is(err, ErrNotVouchedFor) {
			t.Errorf("%s: %v", other, err)
		}
	}
}

func TestATokenDoesNotGoWhereOnlyALeaseSaysSo(t *testing.T) {
	address, ca := serve(t)
	announced, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	replica := Replica{Identity: "b", Address: address, Authority: string(announced)}
	finder := Finder{Options: Options{Token: "secret"}}
	if _, err := finder.Connect(replica); !errors.Is(err, ErrNotVouchedFor) {
		t.Errorf("%v", err)
	}
	finder.TrustAnnounced = true
	client, err := finder.Connect(replica)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if found, err := holderOf(t, client); err != nil || found != "Bearer secret" {
		t.Errorf("%q, %v", found, err)
	}
	// A certificate gives nothing away; the token beside it would.
	authority := newAuthority(t, "authority")
	_, certificate, key := authority.issue(t, "jane")
	finder = Finder{Options: Options{
		Token:    "secret",
		CertFile: write(t, t.TempDir(), "client.pem", certificate),
		KeyFile:  write(t, t.TempDir(), "client.key", key),
	}}
	careful, err := finder.Connect(replica)
	if err != nil {
		t.Fatal(err)
	}
	defer careful.Close()
	if found, err := holderOf(t, careful); err == nil {
		t.Errorf("the token was shown: %q", found)
	}
	replica.Authority = "nonsense"
	if _, err := finder.Connect(replica); err == nil || !strings.Contains(err.Error(), "the Lease of b at") {
		t.Errorf("%v", err)
	}
}

func TestCertificateOfTheClustersCAWithAnotherNameGetsNoToken(t *testing.T) {
	cluster := newAuthority(t, "cluster")
	ca := write(t, t.TempDir(), "ca.pem", cluster.pem)
	finder := Finder{Options: Options{Token: "secret"}, ClusterCAFile: ca}
	coxswain, _, _ := cluster.issue(t, "coxswain", CertificateName)
	client, err := finder.Connect(Replica{Identity: "b", Address: serveWith(t, coxswain)})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if found, err := holderOf(t, client); err != nil || found != "Bearer secret" {
		t.Errorf("%q, %v", found, err)
	}
	// Whoever may write Leases announces a node, which has a certificate for its address.
	node, certificate, key := cluster.issue(t, "system:node:a")
	replica := Replica{Identity: "b", Address: serveWith(t, node)}
	refused, err := finder.Connect(replica)
	if err != nil {
		t.Fatal(err)
	}
	defer refused.Close()
	if found, err := holderOf(t, refused); err == nil || !strings.Contains(err.Error(), CertificateName) {
		t.Errorf("the token was shown: %q, %v", found, err)
	}
	if hint := finder.hint(replica); !strings.Contains(hint, CertificateName) {
		t.Errorf("%q", hint)
	}
	// An approver has let a node have the name of Coxswain.
	for _, subject := range []pkix.Name{
		{CommonName: "system:node:a", Organization: []string{"system:nodes"}},
		{CommonName: "coxswain", Organization: []string{"others", "system:nodes"}},
		{CommonName: "system:node:a"},
	} {
		pair, _, _ := cluster.issueTo(t, subject, CertificateName)
		refused, err := finder.Connect(Replica{Identity: "b", Address: serveWith(t, pair)})
		if err != nil {
			t.Fatal(err)
		}
		if found, err := holderOf(t, refused); err == nil || !strings.Contains(err.Error(), "belongs to a node") {
			t.Errorf("%s: the token was shown: %q, %v", subject, found, err)
		}
		refused.Close()
	}
	// The user may name the server.
	finder.Addresses = []string{replica.Address}
	named, err := finder.Connect(replica)
	if err != nil {
		t.Fatal(err)
	}
	defer named.Close()
	if found, err := holderOf(t, named); err != nil || found != "Bearer secret" {
		t.Errorf("%q, %v", found, err)
	}
	// A client certificate needs no other name, and the token beside it stays here.
	finder = Finder{ClusterCAFile: ca, Options: Options{
		Token:    "secret",
		CertFile: write(t, t.TempDir(), "client.pem", certificate),
		KeyFile:  write(t, t.TempDir(), "client.key", key),
	}}
	certified, err := finder.Connect(replica)
	if err != nil {
		t.Fatal(err)
	}
	defer certified.Close()
	if found, err := holderOf(t, certified); status.Code(err) != codes.Unauthenticated {
		t.Errorf("%q, %v", found, err)
	}
}

func TestAddressesThatAReplicaCanNotHave(t *testing.T) {
	for _, address := range []string{"", "a", "a:0", "a:65536", "a:x", "unix:/run/x", "unix:/x:1", "dns:///a:1", "https://a:1", "a@b:1", "a b:1"} {
		_, err := Finder{Options: Options{}}.Connect(Replica{Address: address})
		if err == nil || !strings.Contains(err.Error(), "expected HOST:PORT") {
			t.Errorf("%q: %v", address, err)
		}
	}
	for _, address := range []string{"a:1", "node-1.example:10257", "10.0.0.2:10257", "[fd00::2]:10257"} {
		if err := checkAddress(address); err != nil {
			t.Error(err)
		}
	}
}
