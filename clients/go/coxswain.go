// Package coxswain connects to the admin API of Coxswain, a Kubernetes controller manager.
//
// The messages and clients are generated; see the package coxswain/admin/v1 in this module. This package is the small
// part around them: Connect makes a client of one replica, a Finder finds the replicas by their Leases, and a Follower
// sends calls to the one that leads.
package coxswain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	adminv1 "github.com/coxswain-dev/coxswain/clients/go/coxswain/admin/v1"
)

// Options say whom to trust and who one is. The zero value trusts the system's authorities and shows no credentials.
type Options struct {
	// CAFile holds the authorities (PEM) that may vouch for the server, read anew for every connection; empty for the
	// system's.
	CAFile string
	// CA is the same as CAFile, but its content.
	CA []byte
	// CertFile and KeyFile are a client certificate (PEM), read anew for every connection; both or neither.
	CertFile, KeyFile string
	// Token is a bearer token, that of a service account for example.
	Token string
	// TokenFile holds a bearer token that is read anew for every call, as tokens in pods are rotated.
	TokenFile string
	// ServerName is expected in the server's certificate instead of the address' host.
	ServerName string
	// DialOptions are added to those made from the above.
	DialOptions []grpc.DialOption

	// refuseNodes refuses servers with the certificate of a node, before a token is sent.
	refuseNodes bool
}

// Client has all services of one replica.
type Client struct {
	Controllers adminv1.ControllerServiceClient
	Events      adminv1.EventServiceClient
	Leader      adminv1.LeaderServiceClient
	Queues      adminv1.QueueServiceClient

	conn *grpc.ClientConn
}

// Connect makes a client of the replica at address, "host:port". The connection is made with the first call.
func Connect(address string, options Options) (*Client, error) {
	if options.Token != "" && options.TokenFile != "" {
		return nil, errors.New("coxswain: Token and TokenFile are both set: one is allowed")
	}
	tls, err := rotate(options)
	if err != nil {
		return nil, err
	}
	dial := []grpc.DialOption{
		grpc.WithTransportCredentials(tls),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
	}
	if options.hasToken() {
		dial = append(dial, grpc.WithPerRPCCredentials(bearer(options.token)))
	}
	conn, err := grpc.NewClient(address, append(dial, options.DialOptions...)...)
	if err != nil {
		return nil, fmt.Errorf("coxswain: %w", err)
	}
	return &Client{
		Controllers: adminv1.NewControllerServiceClient(conn),
		Events:      adminv1.NewEventServiceClient(conn),
		Leader:      adminv1.NewLeaderServiceClient(conn),
		Queues:      adminv1.NewQueueServiceClient(conn),
		conn:        conn,
	}, nil
}

// Conn is the connection, for services that are not of this API: health, reflection.
func (c *Client) Conn() *grpc.ClientConn { return c.conn }

// Close ends the connection and all calls on it.
func (c *Client) Close() error { return c.conn.Close() }

func (o Options) hasToken() bool { return o.Token != "" || o.TokenFile != "" }

// token is the token as it is now.
func (o Options) token() (string, error) {
	if o.TokenFile == "" {
		return o.Token, nil
	}
	content, err := os.ReadFile(o.TokenFile)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(content))
	if token == "" {
		return "", fmt.Errorf("%s: there is no token in it", o.TokenFile)
	}
	return token, nil
}

// bearer sends a token with every call, over TLS only.
type bearer func() (string, error)

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := b()
	if err != nil {
		return nil, fmt.Errorf("coxswain: %w", err)
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

func (bearer) RequireTransportSecurity() bool { return true }
