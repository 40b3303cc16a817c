package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"coxswain.dev/controlplane/internal/pki"
	"coxswain.dev/controlplane/internal/supervise"
)

type probeContext = context.Context

const requestTimeout = 30 * time.Second

// apiClient speaks to the API server as the administrator, in JSON.
type apiClient struct {
	http   *http.Client
	server string
}

// statusError is an answer other than success.
type statusError struct {
	method, path string
	code         int
	body         string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s %s: %s: %s", e.method, e.path, http.StatusText(e.code), e.body)
}

func hasStatus(err error, code int) bool {
	var status *statusError
	return errors.As(err, &status) && status.code == code
}

func plainClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: requestTimeout}
}

// newTLSClient trusts the cluster's authority and presents the given certificate, if any.
func newTLSClient(ca []byte, credentials *pki.Pair) (*http.Client, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("the cluster authority's certificate is not PEM")
	}
	config := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	if credentials != nil {
		pair, err := tls.X509KeyPair(credentials.Cert, credentials.Key)
		if err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{
		Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute},
		Timeout:   requestTimeout,
	}, nil
}

// do sends one request. A body is sent as JSON unless a content type is given; an answer is decoded into out if that is
// not nil.
func (a *apiClient) do(ctx context.Context, method, path, contentType string, body, out any) error {
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("%s %s: %w", method, path, err)
		}
		reader = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, a.server+path, reader)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "coxswain-controlplane")
	if body != nil {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := a.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return &statusError{method: method, path: path, code: response.StatusCode, body: string(text)}
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

func (a *apiClient) create(ctx context.Context, path string, body any) error {
	return a.do(ctx, http.MethodPost, path, "application/json", body, nil)
}

// Ready asks the API server whether it is.
func (a *apiClient) Ready(ctx context.Context) error { return get(ctx, a.http, a.server+"/readyz") }

// getProbe is ready when a GET of the URL succeeds.
func getProbe(client *http.Client, url string) supervise.Probe {
	return func(ctx context.Context) error { return get(ctx, client, url) }
}

func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return &statusError{method: http.MethodGet, path: url, code: response.StatusCode, body: string(text)}
	}
	return nil
}
