// Package coxswain connects to the admin API of Coxswain, a Kubernetes controller manager.
//
// The package coxswain/admin/v1 of this module contains the generated messages and clients. This package adds
// connections: Connect creates a client of one replica, a Finder finds the replicas by their Leases, and a Follower
// sends calls to the leader.
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

// Options contain the trusted CAs and the caller's credentials. The zero value trusts the system's CAs and sends no
// credentials.
type Options struct {
	// CAFile is a file with the trusted CAs (PEM), read for every connection; empty for the system's CAs.
	CAFile string
	// CA is the content of such a file.
	CA []byte
	// CertFile and KeyFile are the files of a client certificate and its key (PEM), read for every connection. Set both
	// or neither.
	CertFile, KeyFile string
	// Token is a bearer token, for example of a service account.
	Token string
	// TokenFile is a file with a bearer token, read for every call, because tokens in pods are rotated.
	TokenFile string
	// ServerName is the name to expect in the server's certificate, instead of the host of the address.
	ServerName string
	// DialOptions are additional options of grpc.
	DialOptions []grpc.DialOption

	// refuseNodes rejects servers with the certificate of a node before a token is sent.
	refuseNodes bool
}

// Client contains all services of one replica.
type Client struct {
	Controllers adminv1.ControllerServiceClient
	Events      adminv1.EventServiceClient
	Leader      adminv1.LeaderServiceClient
	Queues      adminv1.QueueServiceClient

	conn *grpc.ClientConn
}

// Connect creates a client of the replica at address, "host:port". The first call opens the connection.
func Connect(address string, options Options) (*Client, error) {
	if options.Token != "" && options.TokenFile != "" {
		return nil, errors.New("coxswain: options Token and TokenFile are both set; set only one")
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

// Conn returns the connection, for services outside this API, such as health and reflection.
func (c *Client) Conn() *grpc.ClientConn { return c.conn }

// Close closes the connection and cancels all calls on it.
func (c *Client) Close() error { return c.conn.Close() }

func (o Options) hasToken() bool { return o.Token != "" || o.TokenFile != "" }

// token returns the current token.
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
		return "", fmt.Errorf("token file %s: the file contains no token", o.TokenFile)
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
