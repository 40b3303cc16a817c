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

// rotating are TLS credentials that read their files for every handshake, so that a client survives a rotation of its
// certificate and of its trusted CAs.
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

// config returns the current TLS configuration. The certificate and its key are not replaced at the same time: until
// they match again, config returns the previous configuration together with the error.
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
		err = fmt.Errorf("%w (with the previous credentials, because reading the files failed: %w)", err, stale)
	}
	return secured, info, err
}

func (r *rotating) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("coxswain: server handshake with client credentials")
}

func (r *rotating) Info() credentials.ProtocolInfo {
	return credentials.NewTLS(&tls.Config{ServerName: r.options.ServerName}).Info()
}

func (r *rotating) Clone() credentials.TransportCredentials {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &rotating{options: r.options, last: r.last}
}

// OverrideServerName is deprecated in grpc, but its interface requires it.
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
		return fmt.Errorf("refusing to send a token: the certificate for %s belongs to a node (%s)", CertificateName, subject.CommonName)
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
			return nil, errors.New("options CA and CAFile are both set; set only one")
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
			return nil, fmt.Errorf("%s: contains no certificate (PEM)", from)
		}
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		return nil, errors.New("options CertFile and KeyFile: set both or neither")
	}
	if o.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("%s with %s: %w", o.CertFile, o.KeyFile, err)
		}
		// Sent regardless of the CAs that the server requests, so that the server itself rejects the certificate.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return config, nil
}
