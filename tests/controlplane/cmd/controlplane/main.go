// Command controlplane runs a Kubernetes control plane on the loopback address for development, tests and benchmarks:
// etcd, kube-apiserver, kube-scheduler, kwok's nodes and, if wanted, the Go kube-controller-manager.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const usage = `Usage:
  controlplane up --dir DIR [flags]                 run a control plane in the foreground (up --help lists the flags)
  controlplane down --dir DIR                       stop the one that runs in DIR
  controlplane ctl --dir DIR COMMAND [ARGUMENT...]  look at it and control its components (ctl --help lists the commands)
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-ctx.Done()
		stop() // a second signal ends the launcher at once, and the kernel its children
	}()
	if err := run(ctx, os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "controlplane:", err)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return flag.ErrHelp
	}
	switch args[0] {
	case "up":
		return up(ctx, args[1:])
	case "down":
		return down(ctx, args[1:])
	case "ctl":
		return ctl(ctx, args[1:])
	case "help", "--help", "-h":
		fmt.Print(usage)
		return nil
	default:
		return fmt.Errorf("no such command: %s\n%s", args[0], usage)
	}
}
