package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"coxswain.dev/controlplane/internal/cluster"
	"coxswain.dev/controlplane/internal/control"
)

// closeWithin bounds the stop of everything. What is left then dies with the launcher.
const closeWithin = 45 * time.Second

// upFlags reads the flags of `up`.
func upFlags(args []string) (options cluster.Options, stdinLifetime bool, err error) {
	options.Args = map[string][]string{}
	set := flag.NewFlagSet("controlplane up", flag.ContinueOnError)
	set.StringVar(&options.Dir, "dir", "", "`directory` of this control plane, made if missing; cleared of an earlier one's files")
	set.BoolVar(&options.RemoveDir, "rm", false, "remove the directory at the end")
	set.StringVar(&options.BinDir, "bin-dir", "", "`directory` of the binaries (default: this program's own)")
	set.IntVar(&options.Nodes, "nodes", 3, "`number` of nodes")
	set.BoolVar(&options.Kwok, "kwok", true, "run kwok, which plays the nodes' kubelets")
	set.BoolVar(&options.Scheduler, "scheduler", true, "run kube-scheduler")
	set.BoolVar(&options.GoManager, "with-go-manager", false, "run the Go kube-controller-manager")
	set.BoolVar(&options.Audit, "audit", false, "log the metadata of every API request to logs/audit.log")
	set.StringVar(&options.TracingEndpoint, "tracing-endpoint", "", "OTLP gRPC `host:port` for the API server's spans")
	set.IntVar(&options.SamplingPerMillion, "tracing-sampling-per-million", 1_000_000,
		"how many of a million requests without a sampling decision are traced")
	set.StringVar(&options.FeatureGates, "feature-gates", "", "`Name=bool,...` for kube-apiserver, kube-scheduler and controller managers")
	set.StringVar(&options.PodStages, "pod-stages", "fast", "how kwok plays pods: `fast`, at once, or general, with delays")
	set.BoolVar(&options.FaultStages, "fault-stages", false, "let labels on pods and nodes ask kwok for failures")
	set.Func("kwok-stage", "a further kwok stage `file`; may be repeated", func(path string) error {
		_, err := os.Stat(path)
		options.ExtraStages = append(options.ExtraStages, path)
		return err
	})
	for flagName, component := range map[string]string{
		"etcd-arg": cluster.Etcd, "apiserver-arg": cluster.APIServer, "scheduler-arg": cluster.Scheduler,
		"kwok-arg": cluster.Kwok, "go-manager-arg": cluster.GoManager,
	} {
		set.Func(flagName, "a further `flag=value` for "+component+"; may be repeated", func(arg string) error {
			options.Args[component] = append(options.Args[component], arg)
			return nil
		})
	}
	set.BoolVar(&stdinLifetime, "stdin-lifetime", false, "stop when standard input ends, so with the program that started this one")
	if err := set.Parse(args); err != nil {
		return options, false, err
	}
	if set.NArg() > 0 {
		return options, false, fmt.Errorf("up takes no arguments: %s", strings.Join(set.Args(), " "))
	}
	return options, stdinLifetime, options.Validate()
}

func up(ctx context.Context, args []string) (err error) {
	options, stdinLifetime, err := upFlags(args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if stdinLifetime {
		go func() {
			// Whatever ends the input, its other side is gone.
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
	}
	running, err := cluster.Start(ctx, options, os.Stderr)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
		defer cancel()
		err = errors.Join(err, running.Close(ctx))
	}()
	server, err := control.Serve(running.SocketPath(), running, cancel)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	line, err := running.WriteReport()
	if err != nil {
		return err
	}
	if _, err := os.Stdout.Write(line); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
