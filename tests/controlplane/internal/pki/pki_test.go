package pki

import (
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"testing"
)

func parse(t *testing.T, pair Pair) *x509.Certificate {
	t.Helper()
	loaded, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatalf("certificate and key do not belong together: %v", err)
	}
	cert, err := x509.ParseCertificate(loaded.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func pool(t *testing.T, authority *Authority) *x509.CertPool {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority.Cert) {
		t.Fatal("authority's certificate is not PEM")
	}
	return roots
}

func TestServingCertificateHoldsForItsHostsOnly(t *testing.T) {
	ours, err := NewAuthority("cluster-ca")
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := NewAuthority("cluster-ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ours.Serving("kube-apiserver", "localhost", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	cert := parse(t, pair)
	for _, host := range []string{"localhost", "127.0.0.1"} {
		if _, err := cert.Verify(x509.VerifyOptions{Roots: pool(t, ours), DNSName: host}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: pool(t, ours), DNSName: "example.com"}); err == nil {
		t.Error("holds for a host that it was not issued for")
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: pool(t, stranger), DNSName: "localhost"}); err == nil {
		t.Error("another cluster's authority of the same name accepts it")
	}
}

func TestClientCertificateNamesUserAndGroups(t *testing.T) {
	authority, err := NewAuthority("cluster-ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Client("admin", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	cert := parse(t, pair)
	if cert.Subject.CommonName != "admin" || len(cert.Subject.Organization) != 1 ||
		cert.Subject.Organization[0] != "system:masters" {
		t.Errorf("subject is %s", cert.Subject)
	}
	options := x509.VerifyOptions{Roots: pool(t, authority), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if _, err := cert.Verify(options); err != nil {
		t.Error(err)
	}
	options.KeyUsages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	if _, err := cert.Verify(options); err == nil {
		t.Error("a client certificate can serve")
	}
}

func TestServiceAccountKeysMatch(t *testing.T) {
	private, public, err := ServiceAccountKeys()
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(private)
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	block, _ = pem.Decode(public)
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if rsaKey, ok := parsed.(*rsa.PublicKey); !ok || !rsaKey.Equal(key.Public()) {
		t.Error("public key is not the private key's")
	}
}
