package ports

import (
	"fmt"
	"net"
	"testing"
)

func TestPortsAreDistinctAndUsable(t *testing.T) {
	var first, second Pool
	defer first.Close()
	defer second.Close()
	seen := map[int]bool{}
	for i := range 200 {
		pool := &first
		if i%2 == 1 {
			pool = &second
		}
		port, err := pool.Get()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] {
			t.Fatalf("port %d was handed out twice", port)
		}
		seen[port] = true
	}
	for port := range seen {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatalf("reserved port can't be listened on: %v", err)
		}
		listener.Close()
	}
}

func TestReservationKeepsOthersAwayUntilGivenBack(t *testing.T) {
	var pool Pool
	port, err := pool.Get()
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("@coxswain-controlplane-port-%d", port)
	if other, err := net.Listen("unix", name); err == nil {
		other.Close()
		t.Fatal("a second launcher could reserve the same port")
	}
	pool.Put(port)
	other, err := net.Listen("unix", name)
	if err != nil {
		t.Fatalf("a port given back is still reserved: %v", err)
	}
	other.Close()
	if err := pool.Close(); err != nil {
		t.Error(err)
	}
}

func TestPortInUseIsNotFree(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if free(listener.Addr().(*net.TCPAddr).Port) {
		t.Error("a port that is listened on counts as free")
	}
}
