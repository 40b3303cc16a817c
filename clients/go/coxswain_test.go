package coxswain

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	adminv1 "github.com/coxswain-dev/coxswain/clients/go/coxswain/admin/v1"
)

// server answers GetLeader with the token that it was shown.
type server struct {
	adminv1.UnimplementedLeaderServiceServer
}

func (server) GetLeader(ctx context.Context, _ *adminv1.GetLeaderRequest) (*adminv1.GetLeaderResponse, error) {
	shown, _ := metadata.FromIncomingContext(ctx)
	tokens := shown.Get("authorization")
	if len(tokens) != 1 {
		return nil, status.Error(codes.Unauthenticated, "no token")
	}
	return &adminv1.GetLeaderResponse{Leader: &adminv1.Leader{HolderIdentity: tokens[0]}}, nil
}

func serve(t *testing.T) (address, ca string) {
	t.Helper()
	authority := newAuthority(t, "authority")
	pair, _, _ := authority.issue(t, "server")
	return serveWith(t, pair), write(t, t.TempDir(), "ca.pem", authority.pem)
}

// serveWith serves with a certificate until the test ends.
func serveWith(t *testing.T, pair tls.Certificate) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	grpcServer := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&pair)))
	adminv1.RegisterLeaderServiceServer(grpcServer, server{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := grpcServer.Serve(listener); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { grpcServer.Stop(); <-done })
	return listener.Addr().String()
}

func holder(t *testing.T, address string, options Options) (string, error) {
	t.Helper()
	client, err := Connect(address, options)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	return holderOf(t, client)
}

func holderOf(t *testing.T, client *Client) (string, error) {
	t.Helper()
	answer, err := client.Leader.GetLeader(t.Context(), &adminv1.GetLeaderRequest{})
	return answer.GetLeader().GetHolderIdentity(), err
}

func TestCredentials(t *testing.T) {
	address, ca := serve(t)
	if found, err := holder(t, address, Options{CAFile: ca, Token: "secret"}); err != nil || found != "Bearer secret" {
		t.Errorf("token: %q, %v", found, err)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("rotated\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if found, err := holder(t, address, Options{CAFile: ca, TokenFile: file}); err != nil || found != "Bearer rotated" {
		t.Errorf("token file: %q, %v", found, err)
	}
	if _, err := holder(t, address, Options{CAFile: ca}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("no token: %v", err)
	}
	if _, err := holder(t, address, Options{Token: "secret"}); status.Code(err) != codes.Unavailable {
		t.Errorf("a server that nobody trusts was called: %v", err)
	}
}

func TestOptionsThatCannotBe(t *testing.T) {
	for name, options := range map[string]Options{
		"two tokens":        {Token: "a", TokenFile: "b"},
		"half a pair":       {CertFile: "a"},
		"no such authority": {CAFile: "/nonexistent"},
		"two authorities":   {CA: []byte("a"), CAFile: "b"},
		"no authority":      {CA: []byte("a")},
		"no such pair":      {CertFile: "/nonexistent", KeyFile: "/nonexistent"},
	} {
		if _, err := Connect("localhost:1", options); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
