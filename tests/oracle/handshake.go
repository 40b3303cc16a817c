package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"strings"
	"time"
)

// handshakes holds the outcome of a handshake in each version of TLS in which both sides present the same key: empty if it is
// completed, else the error.
type handshakes struct {
	TLS12 string `json:"tls12"`
	TLS13 string `json:"tls13"`
}

// deadline bounds a handshake that one side has given up.
const deadline = time.Minute

// keyBlock returns the block of a private key if a text begins with one.
func keyBlock(text []byte) *pem.Block {
	block, rest := pem.Decode(text)
	for block != nil && block.Type == parametersLabel {
		block, rest = pem.Decode(rest)
	}
	if block == nil || !strings.HasSuffix(block.Type, keyLabel) {
		return nil
	}
	return block
}

// shake plays handshakes with a private key in PEM, of which block is the key.
func shake(text []byte, block *pem.Block) *handshakes {
	pair, err := certified(text, block)
	outcome := func(version uint16) string {
		if err != nil {
			return err.Error()
		}
		if err := shakeIn(version, pair); err != nil {
			return err.Error()
		}
		return ""
	}
	return &handshakes{TLS12: outcome(tls.VersionTLS12), TLS13: outcome(tls.VersionTLS13)}
}

func shakeIn(version uint16, pair tls.Certificate) error {
	there, here := net.Pipe()
	end := time.Now().Add(deadline)
	if err := errors.Join(there.SetDeadline(end), here.SetDeadline(end)); err != nil {
		return err
	}
	server := tls.Server(there, &tls.Config{
		Certificates: []tls.Certificate{pair},
		ClientAuth:   tls.RequireAnyClientCert,
		MinVersion:   version,
		MaxVersion:   version,
	})
	client := tls.Client(here, &tls.Config{
		Certificates:       []tls.Certificate{pair},
		InsecureSkipVerify: true, // The signatures of the handshake are verified anyway.
		MinVersion:         version,
		MaxVersion:         version,
	})
	served := make(chan error, 1)
	go func() {
		err := server.Handshake()
		if err == nil {
			_, err = server.Write([]byte{1})
		}
		served <- errors.Join(err, there.Close())
	}()
	err := client.Handshake()
	if err == nil {
		// In TLS 1.3 the server verifies the client's certificate after the client's handshake.
		_, err = io.ReadFull(client, make([]byte, 1))
	}
	return errors.Join(err, here.Close(), <-served)
}

// certified returns a private key with a certificate for it.
func certified(text []byte, block *pem.Block) (tls.Certificate, error) {
	parsed, err := parseKey(block.Bytes)
	if err != nil {
		return tls.Certificate{}, err
	}
	signer, isSigner := parsed.(crypto.Signer)
	if !isSigner {
		return tls.Certificate{}, fmt.Errorf("a key that does not sign: %T", parsed)
	}
	issuer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	parent := &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, signer.Public(), issuer)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(pem.EncodeToMemory(&pem.Block{Type: certificateLabel, Bytes: der}), text)
}

// parseKey reads the forms of private keys that crypto/tls reads.
func parseKey(der []byte) (any, error) {
	if key, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return key, nil
	}
	if key, err := x509.ParseECPrivateKey(der); err == nil {
		return key, nil
	}
	return x509.ParsePKCS8PrivateKey(der)
}
