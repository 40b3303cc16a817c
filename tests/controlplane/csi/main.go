// Command csi-driver serves Kubernetes' own mock of a CSI driver on a unix socket: volumes in memory, which can be made, attached,
// grown and deleted without privileges. Calls that change volumes go to stdout, a line each: the method, its status, the volume.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path"
	"strings"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/driver"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/mock/service"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "csi-driver: its name and its socket are wanted")
		os.Exit(2)
	}
	if err := serve(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "csi-driver:", err)
		os.Exit(1)
	}
}

// serve ends with an interrupt. Every node goes by the driver's name, for the mock knows a single one.
func serve(name, socket string) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	mock := service.New(service.Config{DriverName: name})
	served := driver.NewCSIDriver(&driver.CSIDriverServers{Controller: mock, Identity: mock, Node: mock})
	if err := served.Start(listener, tell); err != nil {
		return err
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt, syscall.SIGTERM)
	<-ended
	served.Stop()
	return nil
}

// tell passes a call on, and says of what volume it was.
func tell(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	reply, err := handler(ctx, request)
	method := path.Base(info.FullMethod)
	for _, begin := range []string{"CreateVolume", "DeleteVolume", "ControllerPublish", "ControllerUnpublish", "ControllerExpand"} {
		if strings.HasPrefix(method, begin) {
			fmt.Println(method, status.Code(err), volume(request, reply))
		}
	}
	return reply, err
}

// volume is the handle of the volume that a request names, or that its answer brings.
func volume(request, reply any) string {
	if made, ok := reply.(interface{ GetVolume() *csi.Volume }); ok {
		return made.GetVolume().GetVolumeId()
	}
	if named, ok := request.(interface{ GetVolumeId() string }); ok {
		return named.GetVolumeId()
	}
	return ""
}
