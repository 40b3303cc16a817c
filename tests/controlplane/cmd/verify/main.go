// Command verify says whether Go takes a certificate from a client, by the authorities in a file.
package main

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 3 {
		fail("usage: verify AUTHORITIES CERTIFICATE")
	}
	authorities, err := os.ReadFile(os.Args[1])
	if err != nil {
		fail(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authorities) {
		fail("no authority in " + os.Args[1])
	}
	text, err := os.ReadFile(os.Args[2])
	if err != nil {
		fail(err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		fail("no certificate in " + os.Args[2])
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		fail(err)
	}
	usages := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if _, err := certificate.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: usages}); err != nil {
		fail(err)
	}
}

func fail(why any) {
	fmt.Fprintln(os.Stderr, "verify:", why)
	os.Exit(1)
}
