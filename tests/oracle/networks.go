package main

import (
	"errors"

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
