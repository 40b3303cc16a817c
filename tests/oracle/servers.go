//go:build !standard

package main

import (
	"net/url"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// readServer reads whether the client has anything for TLS (`tls`), and the address of an API server. It answers where a request for
// /version is sent.
func readServer(text string) (any, error) {
	security, address := first(text)
	base, _, err := rest.DefaultServerURL(address, "", schema.GroupVersion{}, security == "tls")
	if err != nil {
		return nil, err
	}
	return destination(base)
}

func destination(base *url.URL) (map[string]any, error) {
	asked := rest.NewRequestWithClient(base, "", rest.ClientContentConfig{}, nil).Verb("GET").AbsPath("/version").URL()
	port := asked.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[asked.Scheme]
	}
	var number uint64
	if port != "" {
		var err error
		if number, err = strconv.ParseUint(port, 10, 16); err != nil {
			return nil, err // Connections to it fail.
		}
	}
	read := map[string]any{
		"scheme": asked.Scheme,
		"host":   asked.Hostname(),
		"port":   number,
		"path":   asked.EscapedPath(),
	}
	if asked.RawQuery != "" {
		read["query"] = asked.RawQuery
	}
	if asked.User != nil {
		read["user"] = asked.User.String()
	}
	return read, nil
}
