//go:build !standard

package main

import (
	"errors"
	"net/netip"

	netutils "k8s.io/utils/net"
)

// readAddress reads a text as an address and as a range of addresses, in the lenient form of stored objects. A reading that refuses
// the text is absent from the answer.
func readAddress(text string) (any, error) {
	read := map[string]any{}
	if address := netutils.ParseIPSloppy(text); address != nil {
		read["address"] = address.String()
	}
	if _, network, err := netutils.ParseCIDRSloppy(text); err == nil {
		read["range"] = network.String()
	}
	if len(read) == 0 {
		return nil, errors.New("neither an address nor a range")
	}
	return read, nil
}

// readStrictAddress reads a text as an address and as a range of addresses, in the form that the API server takes from clients.
func readStrictAddress(text string) (any, error) {
	read := map[string]any{}
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		read["address"] = address.String()
	}
	if network, err := netip.ParsePrefix(text); err == nil {
		read["range"] = network.Masked().String()
	}
	if len(read) == 0 {
		return nil, errors.New("neither an address nor a range")
	}
	return read, nil
}
