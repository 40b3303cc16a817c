package coxswain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Lease contains the used fields of a Lease (coordination.k8s.io/v1).
type Lease struct {
	// Name is the name of the object.
	Name string
	// Annotations are the annotations of the object.
	Annotations map[string]string
	// HolderIdentity is the identity of the holder; empty if the Lease has no holder.
	HolderIdentity string
	// RenewTime is the time of the last renewal; zero if the Lease was never renewed.
	RenewTime time.Time
	// LeaseDuration is the time from the last renewal to the expiry.
	LeaseDuration time.Duration
}

// Leases reads Leases from the cluster. APIServer implements it. You can also implement it with an existing client of
// the cluster, such as client-go.
type Leases interface {
	// ListLeases lists the Leases of a namespace that match a label selector.
	ListLeases(ctx context.Context, namespace, labelSelector string) ([]Lease, error)
	// GetLease returns one Lease. It returns ErrNoLease if the Lease does not exist or the caller cannot read it.
	GetLease(ctx context.Context, namespace, name string) (Lease, error)
}

// ErrNoLease is the error for a Lease that does not exist or that the caller cannot read.
var ErrNoLease = errors.New("coxswain: the Lease does not exist or cannot be read")

// The mount of a pod's service account.
const podDirectory = "/var/run/secrets/kubernetes.io/serviceaccount"

// maxLeases is the maximum size of a response in bytes. A Lease has at most some kilobytes.
const maxLeases = 16 << 20

// APIServer reads Leases from the cluster's API server. It requires HTTPS.
type APIServer struct {
	server *url.URL
	tls    *rotating
}

// NewAPIServer returns a reader of Leases for the API server at server, "https://HOST[:PORT]". The files of the options
// are read for every request.
func NewAPIServer(server string, options Options) (*APIServer, error) {
	parsed, err := url.Parse(server)
	if err != nil || parsed.Scheme != "https" || parsed.Host == "" || parsed.User != nil {
		return nil, fmt.Errorf("coxswain: API server %q: expected https://HOST[:PORT]", server)
	}
	if options.Token != "" && options.TokenFile != "" {
		return nil, errors.New("coxswain: options Token and TokenFile are both set; set only one")
	}
	tls, err := rotate(options)
	if err != nil {
		return nil, err
	}
	return &APIServer{server: parsed, tls: tls}, nil
}

// InCluster returns the URL of the API server and the options of the pod's service account. It works only in a pod.
func InCluster() (server string, options Options, err error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return "", Options{}, errors.New(
			"coxswain: not in a pod: KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is unset")
	}
	options = Options{CAFile: podDirectory + "/ca.crt", TokenFile: podDirectory + "/token"}
	return "https://" + net.JoinHostPort(host, port), options, nil
}

// ListLeases lists the Leases of a namespace that match a label selector.
func (a *APIServer) ListLeases(ctx context.Context, namespace, labelSelector string) ([]Lease, error) {
	var list struct {
		Items []leaseObject `json:"items"`
	}
	if err := a.get(ctx, &list, url.Values{"labelSelector": {labelSelector}}, namespace); err != nil {
		return nil, err
	}
	leases := make([]Lease, 0, len(list.Items))
	for _, item := range list.Items {
		leases = append(leases, item.lease())
	}
	return leases, nil
}

// GetLease returns one Lease.
func (a *APIServer) GetLease(ctx context.Context, namespace, name string) (Lease, error) {
	var object leaseObject
	err := a.get(ctx, &object, nil, namespace, name)
	return object.lease(), err
}

// leaseObject is the JSON of a Lease.
type leaseObject struct {
	Metadata struct {
		Name        string            `json:"name"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		HolderIdentity       string    `json:"holderIdentity"`
		RenewTime            time.Time `json:"renewTime"`
		LeaseDurationSeconds int       `json:"leaseDurationSeconds"`
	} `json:"spec"`
}

func (o leaseObject) lease() Lease {
	return Lease{
		Name:           o.Metadata.Name,
		Annotations:    o.Metadata.Annotations,
		HolderIdentity: o.Spec.HolderIdentity,
		RenewTime:      o.Spec.RenewTime,
		LeaseDuration:  time.Duration(o.Spec.LeaseDurationSeconds) * time.Second,
	}
}

// get reads the Leases of a namespace, or one of them. Each request opens a connection: requests are rare, and rotated
// certificates apply at once.
func (a *APIServer) get(ctx context.Context, into any, query url.Values, namespace string, name ...string) error {
	elements := append([]string{"apis/coordination.k8s.io/v1/namespaces", url.PathEscape(namespace), "leases"}, name...)
	address := a.server.JoinPath(elements...)
	address.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), http.NoBody)
	if err != nil {
		return fmt.Errorf("coxswain: %w", err)
	}
	request.Header.Set("Accept", "application/json")
	if a.tls.options.hasToken() {
		token, err := a.tls.options.token()
		if err != nil {
			return fmt.Errorf("coxswain: %w", err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	config, stale := a.tls.config()
	transport := &http.Transport{TLSClientConfig: config, Proxy: http.ProxyFromEnvironment}
	defer transport.CloseIdleConnections()
	// A redirect would send the token to another server.
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("coxswain: %w", errors.Join(err, stale))
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxLeases))
	if err != nil {
		return fmt.Errorf("coxswain: GET %s: %w", address, err)
	}
	if response.StatusCode != http.StatusOK {
		return refusal(address, response, body, len(name) > 0)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("coxswain: GET %s: decode the Leases: %w", address, err)
	}
	return nil
}

// refusal returns the error of a rejected request, with a hint.
func refusal(address *url.URL, response *http.Response, body []byte, one bool) error {
	var said struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(body, &said)
	text := strings.TrimSpace(response.Status + " " + said.Message)
	missing := response.StatusCode == http.StatusForbidden || response.StatusCode == http.StatusNotFound
	switch {
	case one && missing:
		return fmt.Errorf("%w: GET %s: %s", ErrNoLease, address, text)
	case response.StatusCode == http.StatusForbidden:
		return fmt.Errorf("coxswain: GET %s: %s (bind the Role coxswain-admin-discovery)", address, text)
	default:
		return fmt.Errorf("coxswain: GET %s: %s", address, text)
	}
}
