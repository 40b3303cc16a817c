package coxswain

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/credentials"
)

// rotating are TLS credentials that read their files anew for every handshake, so that a client outlives a rotation of
// its certificate and of the authorities that it trusts.
type rotating struct {
	options Options

	mu   sync.Mutex
	last *tls.Config
}

func rotate(options Options) (*rotating, error) {
	r := &rotating{options: options}
	if _, err := r.config(); err != nil {
		return nil, fmt.Errorf("coxswain: %w", err)
	}
	return r, nil
}

// config is what the files say now. A reader may come between the writing of a certificate and that of its key: what
// was read last holds until the files fit each other again, and the error says what does not fit.
func (r *rotating) config() (*tls.Config, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	config, err := r.options.tlsConfig()
	if err == nil {
		r.last = config
	}
	if r.last == nil {
		return nil, err
	}
	return r.last.Clone(), err
}

func (r *rotating) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, stale := r.config()
	secured, info, err := credentials.NewTLS(config).ClientHandshake(ctx, authority, conn)
	if err != nil && stale != nil {
		err = fmt.Errorf("%w (with older credentials, for the files can't be used: %w)", err, stale)
	}
	return secured, info, err
}

func (r *rotating) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("coxswain: these credentials are a client's")
}

func (r *rotating) Info() credentials.ProtocolInfo {
	return credentials.NewTLS(&tls.Config{ServerName: r.options.ServerName}).Info()
}

func (r *rotating) Clone() credentials.TransportCredentials {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &rotating{options: r.options, last: r.last}
}

// OverrideServerName is deprecated in grpc, and asked for by its interface.
func (r *rotating) OverrideServerName(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.options.ServerName, r.last = name, nil
	return nil
}

// refuseNode returns an error if a server has the certificate of a node. The signer kubernetes.io/kubelet-serving signs any name
// that an approver accepts, but only with a node as the subject.
func refuseNode(state tls.ConnectionState) error {
	subject := state.PeerCertificates[0].Subject
	if slices.Contains(subject.Organization, "system:nodes") || strings.HasPrefix(subject.CommonName, "system:node:") {
		return fmt.Errorf("the certificate for %s is a node's (%s), and with ClusterCAFile no token is sent to a node", CertificateName, subject.CommonName)
	}
	return nil
}

// tlsConfig reads the files.
func (o Options) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.ServerName}
	if o.refuseNodes || strings.EqualFold(o.ServerName, CertificateName) {
		config.VerifyConnection = refuseNode
	}
	authorities, from := o.CA, "CA"
	if o.CAFile != "" {
		if o.CA != nil {
			return nil, errors.New("CA and CAFile are both set: one is allowed")
		}
		content, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, err
		}
		authorities, from = content, o.CAFile
	}
	if authorities != nil || o.CAFile != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("%s: there is no certificate (PEM) in it", from)
		}
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		return nil, errors.New("of CertFile and KeyFile only one is set: both or neither are allowed")
	}
	if o.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("%s with %s: %w", o.CertFile, o.KeyFile, err)
		}
		// Shown whatever authorities the server names, so that a refusal is the server's own.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return config, nil
}
