package coxswain

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	adminv1 "github.com/coxswain-dev/coxswain/clients/go/coxswain/admin/v1"
)

// mirror answers GetLeader with the name in the client's certificate.
type mirror struct {
	adminv1.UnimplementedLeaderServiceServer
}

func (mirror) GetLeader(ctx context.Context, _ *adminv1.GetLeaderRequest) (*adminv1.GetLeaderResponse, error) {
	caller, _ := peer.FromContext(ctx)
	info, ok := caller.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return nil, errors.New("no TLS")
	}
	name := info.State.PeerCertificates[0].Subject.CommonName
	return &adminv1.GetLeaderResponse{Leader: &adminv1.Leader{HolderIdentity: name}}, nil
}

// serveMutual serves who has a certificate of an authority, with one of that authority.
func serveMutual(t *testing.T, authority certificates) (address string, stop func()) {
	t.Helper()
	pair, _, _ := authority.issue(t, "server")
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair},
		ClientCAs:    authority.pool(),
		ClientAuth:   tls.RequireAndVerifyClientCert,
	})))
	adminv1.RegisterLeaderServiceServer(server, mirror{})
	return start(t, server)
}

// start serves on a free port until it is stopped, or the test ends.
func start(t *testing.T, server *grpc.Server) (address string, stop func()) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	}()
	stop = func() { server.Stop(); <-done }
	t.Cleanup(stop)
	return listener.Addr().String(), stop
}

func TestAClientOutlivesARotation(t *testing.T) {
	directory := t.TempDir()
	rotateFiles := func(authority certificates, name string) {
		_, certificate, key := authority.issue(t, name)
		write(t, directory, "ca.pem", authority.pem)
		write(t, directory, "client.pem", certificate)
		write(t, directory, "client.key", key)
	}
	first, second := newAuthority(t, "first"), newAuthority(t, "second")
	rotateFiles(first, "jane")

	var address atomic.Value
	serving, stop := serveMutual(t, first)
	address.Store(serving)
	client, err := Connect("127.0.0.1:1", Options{
		CAFile: directory + "/ca.pem", CertFile: directory + "/client.pem", KeyFile: directory + "/client.key",
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "tcp", address.Load().(string))
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	who := func() string {
		answer, err := client.Leader.GetLeader(t.Context(), &adminv1.GetLeaderRequest{}, grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		return answer.GetLeader().GetHolderIdentity()
	}
	if found := who(); found != "jane" {
		t.Errorf("before: %q", found)
	}
	// The server, its certificate and all authorities change, under the same client.
	rotateFiles(second, "joan")
	serving, _ = serveMutual(t, second)
	address.Store(serving)
	stop()
	client.Conn().WaitForStateChange(t.Context(), connectivity.Ready)
	if found := who(); found != "joan" {
		t.Errorf("after: %q", found)
	}
}

func TestWhatWasReadLastHoldsUntilTheFilesFit(t *testing.T) {
	directory, authority := t.TempDir(), newAuthority(t, "authority")
	_, certificate, key := authority.issue(t, "jane")
	options := Options{
		CAFile:   write(t, directory, "ca.pem", authority.pem),
		CertFile: write(t, directory, "client.pem", certificate),
		KeyFile:  write(t, directory, "client.key", key),
	}
	rotating, err := rotate(options)
	if err != nil {
		t.Fatal(err)
	}
	shown := func() (string, error) {
		config, stale := rotating.config()
		pair, err := config.GetClientCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(pair.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return leaf.Subject.CommonName, stale
	}
	_, certificate, key = authority.issue(t, "joan")
	write(t, directory, "client.pem", certificate)
	if name, stale := shown(); name != "jane" || stale == nil || !strings.Contains(stale.Error(), options.KeyFile) {
		t.Errorf("the certificate is new, and its key is not: %q, %v", name, stale)
	}
	write(t, directory, "client.key", key)
	if name, stale := shown(); name != "joan" || stale != nil {
		t.Errorf("both are new: %q, %v", name, stale)
	}
	write(t, directory, "ca.pem", nil)
	if name, stale := shown(); name != "joan" || stale == nil || !strings.Contains(stale.Error(), options.CAFile) {
		t.Errorf("there is no authority: %q, %v", name, stale)
	}
}
