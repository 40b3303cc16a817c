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

// Lease is what counts here of a Lease (coordination.k8s.io/v1).
type Lease struct {
	// Name is that of the object.
	Name string
	// Annotations are those of the object.
	Annotations map[string]string
	// HolderIdentity is empty if nobody holds it.
	HolderIdentity string
	// RenewTime is the holder's last sign of life; zero if it has given none.
	RenewTime time.Time
	// LeaseDuration is how long that sign counts.
	LeaseDuration time.Duration
}

// Leases reads Leases from the cluster. APIServer does so; who has a client of the cluster already, client-go for one,
// writes the two methods with it.
type Leases interface {
	// ListLeases lists the Leases of a namespace that have a label.
	ListLeases(ctx context.Context, namespace, labelSelector string) ([]Lease, error)
	// GetLease reads one Lease. Its error is ErrNoLease if there is none of this name, or the caller may not read it.
	GetLease(ctx context.Context, namespace, name string) (Lease, error)
}

// ErrNoLease is the error of a Lease that is not there for the caller.
var ErrNoLease = errors.New("coxswain: there is no such Lease, or it may not be read")

// The mount of a pod's service account.
const podDirectory = "/var/run/secrets/kubernetes.io/serviceaccount"

// maxLeases bounds the bytes of an answer: a Lease has some kilobytes at most.
const maxLeases = 16 << 20

// APIServer reads Leases from the cluster's API server, over HTTPS and nothing else.
type APIServer struct {
	server *url.URL
	tls    *rotating
}

// NewAPIServer makes a reader of the Leases that the API server at server, "https://HOST[:PORT]", has. Options say whom
// to trust there and who one is; their files are read anew for every request.
func NewAPIServer(server string, options Options) (*APIServer, error) {
	parsed, err := url.Parse(server)
	if err != nil || parsed.Scheme != "https" || parsed.Host == "" || parsed.User != nil {
		return nil, fmt.Errorf("coxswain: %q is no API server: https://HOST[:PORT] is allowed", server)
	}
	if options.Token != "" && options.TokenFile != "" {
		return nil, errors.New("coxswain: Token and TokenFile are both set: one is allowed")
	}
	tls, err := rotate(options)
	if err != nil {
		return nil, err
	}
	return &APIServer{server: parsed, tls: tls}, nil
}

// InCluster says, in a pod, where the API server is and who the pod's service account is there.
func InCluster() (server string, options Options, err error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return "", Options{}, errors.New(
			"coxswain: this is no pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not both set")
	}
	options = Options{CAFile: podDirectory + "/ca.crt", TokenFile: podDirectory + "/token"}
	return "https://" + net.JoinHostPort(host, port), options, nil
}

// ListLeases lists Leases by a label.
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

// GetLease reads one Lease.
func (a *APIServer) GetLease(ctx context.Context, namespace, name string) (Lease, error) {
	var object leaseObject
	err := a.get(ctx, &object, nil, namespace, name)
	return object.lease(), err
}

// leaseObject is a Lease as the API server writes it.
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

// get reads what is below a namespace's Leases. Each request has a connection of its own: they are rare, and rotated
// certificates count at once.
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
	// A redirection would take the token elsewhere.
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
		return fmt.Errorf("coxswain: GET %s: no JSON of Leases: %w", address, err)
	}
	return nil
}

// refusal is what the API server says, and what would be allowed.
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
		return fmt.Errorf("coxswain: GET %s: %s (the Role coxswain-admin-discovery allows it)", address, text)
	default:
		return fmt.Errorf("coxswain: GET %s: %s", address, text)
	}
}
