// Command oracle answers how Go's standard library reads certificate requests and certificates: the API server, admission plugins
// and most approvers judge a request by this reading, and the name of a client certificate is a user. Coxswain must not read one
// differently. It also answers whether Go trusts a chain, and with which private keys it completes handshakes. The libraries of
// Kubernetes answer other questions, for example about quantities or schedules: see libraries.go.
//
// Standard input holds batches: a count, then that many texts, each with its length in front. Counts and lengths are 32 bits,
// big-endian. If the highest bit of the count is set, the name of a question precedes the texts, with its length in front.
// Standard output gets one line of JSON per text, in the order of the texts, after a batch is complete. The program ends with
// its standard input.
package main

import (
	"bufio"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"runtime"
	"sync"
	"time"
	"unicode/utf8"
)

// answer is how a text is read. Exactly one of Error, Request, Certificate, Trusted and Handshakes is set.
type answer struct {
	Block       *block       `json:"block"`
	Error       string       `json:"error,omitempty"`
	Request     *request     `json:"request,omitempty"`
	Certificate *certificate `json:"certificate,omitempty"`
	Trusted     bool         `json:"trusted,omitempty"`
	Handshakes  *handshakes  `json:"handshakes,omitempty"`
}

// block is the first PEM block of a text.
type block struct {
	Label string `json:"label"`
	DER   string `json:"der"`
}

// request holds the parts of a request that approvers see and signers keep. Bytes are in hexadecimal digits.
type request struct {
	Country       []string `json:"country"`
	Province      []string `json:"province"`
	Locality      []string `json:"locality"`
	StreetAddress []string `json:"streetAddress"`
	PostalCode    []string `json:"postalCode"`
	Organization  []string `json:"organization"`
	Unit          []string `json:"organizationalUnit"`
	CommonName    string   `json:"commonName"`
	SerialNumber  string   `json:"serialNumber"`
	DNS           []string `json:"dns"`
	Email         []string `json:"email"`
	IP            []string `json:"ip"`
	URI           []string `json:"uri"`
	// Key is the public key as the request encodes it, IssuedKey as a certificate for it does.
	Key       string `json:"key"`
	IssuedKey string `json:"issuedKey"`
	Verified  bool   `json:"verified"`
}

// certificate holds the parts of a client certificate that name a user.
type certificate struct {
	CommonName   string   `json:"commonName"`
	Organization []string `json:"organization"`
	NotBefore    int64    `json:"notBefore"`
	NotAfter     int64    `json:"notAfter"`
}

// certificateLabel is the label of a certificate. A text that begins with clientLabel or serverLabel is a chain: that block has the
// time in eight bytes, and the leaf, intermediates and roots follow.
const (
	certificateLabel  = "CERTIFICATE"
	clientLabel       = "CLIENT"
	serverLabel       = "SERVER"
	intermediateLabel = "INTERMEDIATE"
	rootLabel         = "ROOT"
)

// keyLabel ends the label of a private key. OpenSSL writes a block with parametersLabel before some keys.
const (
	keyLabel        = "PRIVATE KEY"
	parametersLabel = "EC PARAMETERS"
)

// requestLabel is the only label of a request that the API server accepts.
const requestLabel = "CERTIFICATE REQUEST"

// maxLength bounds a text; the API server refuses objects of a smaller size.
const maxLength = 16 << 20

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "oracle: %v\n", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	reader, writer := bufio.NewReaderSize(in, 1<<20), bufio.NewWriterSize(out, 1<<20)
	for {
		batch, err := readBatch(reader)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read batch: %w", err)
		}
		for _, line := range answers(batch) {
			if _, err := writer.Write(append(line, '\n')); err != nil {
				return fmt.Errorf("write answers: %w", err)
			}
		}
		if err := writer.Flush(); err != nil {
			return fmt.Errorf("write answers: %w", err)
		}
	}
}

// inquiry is a batch: a list of texts. Its question is empty for requests and certificates.
type inquiry struct {
	question string
	texts    [][]byte
}

// questionFollows is the bit of a batch's count that announces the name of a question.
const questionFollows = 1 << 31

// readBatch returns io.EOF only if the input ends before a batch begins.
func readBatch(reader io.Reader) (inquiry, error) {
	var (
		read  inquiry
		count uint32
	)
	if err := binary.Read(reader, binary.BigEndian, &count); err != nil {
		return read, err
	}
	if count&questionFollows != 0 {
		name, err := readText(reader)
		if err != nil {
			return read, fmt.Errorf("question: %w", noEOF(err))
		}
		if read.question = string(name); questions[read.question] == nil {
			return read, fmt.Errorf("unknown question %q", name)
		}
		count &^= questionFollows
	}
	for range count {
		text, err := readText(reader)
		if err != nil {
			return read, fmt.Errorf("text %d of %d: %w", len(read.texts)+1, count, noEOF(err))
		}
		read.texts = append(read.texts, text)
	}
	return read, nil
}

func readText(reader io.Reader) ([]byte, error) {
	var length uint32
	if err := binary.Read(reader, binary.BigEndian, &length); err != nil {
		return nil, err
	}
	if length > maxLength {
		return nil, fmt.Errorf("length %d, at most %d are allowed", length, maxLength)
	}
	text := make([]byte, length)
	_, err := io.ReadFull(reader, text)
	return text, err
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// answers reads the texts on all processors.
func answers(batch inquiry) [][]byte {
	texts := batch.texts
	lines := make([][]byte, len(texts))
	workers := runtime.GOMAXPROCS(0)
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			for at := worker; at < len(texts); at += workers {
				if batch.question == "" {
					lines[at] = line(read(texts[at]))
				} else {
					lines[at] = line(ask(questions[batch.question], string(texts[at])))
				}
			}
		})
	}
	group.Wait()
	return lines
}

func line(answer any) []byte {
	encoded, err := json.Marshal(answer)
	if err != nil {
		panic(err) // Answers have only strings, numbers, booleans, lists and maps of these.
	}
	return encoded
}

// read reads a text as the API server does: the first PEM block, then the request or the certificate in it.
func read(text []byte) answer {
	first, rest := pem.Decode(text)
	if first == nil {
		return answer{Error: "no PEM block"}
	}
	read := answer{Block: &block{Label: first.Type, DER: hex.EncodeToString(first.Bytes)}}
	if first.Type == clientLabel || first.Type == serverLabel {
		if err := verify(first, rest); err != nil {
			return answer{Error: err.Error()}
		}
		return answer{Trusted: true}
	}
	if key := keyBlock(text); key != nil {
		read.Handshakes = shake(text, key)
		return read
	}
	if first.Type == certificateLabel {
		parsed, err := x509.ParseCertificate(first.Bytes)
		if err == nil {
			read.Certificate, err = certificateOf(parsed)
		}
		if err != nil {
			read.Error = err.Error()
		}
		return read
	}
	if first.Type != requestLabel {
		read.Error = "PEM block has another label"
		return read
	}
	parsed, err := x509.ParseCertificateRequest(first.Bytes)
	if err == nil {
		read.Request, err = requestOf(parsed)
	}
	if err != nil {
		read.Error = err.Error()
	}
	return read
}

// verify verifies a chain for one side of a connection.
func verify(first *pem.Block, rest []byte) error {
	if len(first.Bytes) != 8 {
		return errors.New("a chain without a time")
	}
	usage := x509.ExtKeyUsageClientAuth
	if first.Type == serverLabel {
		usage = x509.ExtKeyUsageServerAuth
	}
	options := x509.VerifyOptions{
		Roots:         x509.NewCertPool(),
		Intermediates: x509.NewCertPool(),
		CurrentTime:   time.Unix(int64(binary.BigEndian.Uint64(first.Bytes)), 0),
		KeyUsages:     []x509.ExtKeyUsage{usage},
	}
	var leaf *x509.Certificate
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		parsed, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return fmt.Errorf("%s: %w", block.Type, err)
		}
		switch block.Type {
		case rootLabel:
			options.Roots.AddCert(parsed)
		case intermediateLabel:
			options.Intermediates.AddCert(parsed)
		default:
			leaf = parsed
		}
	}
	if leaf == nil {
		return errors.New("a chain without a leaf")
	}
	_, err := leaf.Verify(options)
	return err
}

func certificateOf(parsed *x509.Certificate) (*certificate, error) {
	if err := validText(parsed.Subject); err != nil {
		return nil, err
	}
	return &certificate{
		CommonName:   parsed.Subject.CommonName,
		Organization: list(parsed.Subject.Organization),
		NotBefore:    parsed.NotBefore.Unix(),
		NotAfter:     parsed.NotAfter.Unix(),
	}, nil
}

func requestOf(parsed *x509.CertificateRequest) (*request, error) {
	issuedKey, err := x509.MarshalPKIXPublicKey(parsed.PublicKey)
	if err != nil {
		return nil, err // No certificate can be made for it.
	}
	if err := validText(parsed.Subject, parsed.DNSNames, parsed.EmailAddresses); err != nil {
		return nil, err
	}
	subject := parsed.Subject
	return &request{
		Country:       list(subject.Country),
		Province:      list(subject.Province),
		Locality:      list(subject.Locality),
		StreetAddress: list(subject.StreetAddress),
		PostalCode:    list(subject.PostalCode),
		Organization:  list(subject.Organization),
		Unit:          list(subject.OrganizationalUnit),
		CommonName:    subject.CommonName,
		SerialNumber:  subject.SerialNumber,
		DNS:           list(parsed.DNSNames),
		Email:         list(parsed.EmailAddresses),
		IP:            addresses(parsed.IPAddresses),
		URI:           identifiers(parsed.URIs),
		Key:           hex.EncodeToString(parsed.RawSubjectPublicKeyInfo),
		IssuedKey:     hex.EncodeToString(issuedKey),
		Verified:      parsed.CheckSignature() == nil,
	}, nil
}

// validText refuses what JSON cannot show, so that two readings never look alike because a character was replaced.
func validText(subject pkix.Name, others ...[]string) error {
	all := append(others, subject.Country, subject.Province, subject.Locality, subject.StreetAddress, subject.PostalCode,
		subject.Organization, subject.OrganizationalUnit, []string{subject.CommonName, subject.SerialNumber})
	for _, texts := range all {
		for _, text := range texts {
			if !utf8.ValidString(text) {
				return errors.New("a text is not UTF-8")
			}
		}
	}
	return nil
}

// list returns an empty list for nil, which JSON shows as such.
func list(texts []string) []string {
	return append([]string{}, texts...)
}

func addresses(all []net.IP) []string {
	shown := []string{}
	for _, address := range all {
		shown = append(shown, hex.EncodeToString(address))
	}
	return shown
}

// identifiers returns the URIs as certificates contain them.
func identifiers(all []*url.URL) []string {
	shown := []string{}
	for _, identifier := range all {
		shown = append(shown, identifier.String())
	}
	return shown
}
