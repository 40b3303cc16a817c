package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"text/tabwriter"
	"time"

	"coxswain.dev/controlplane/internal/cluster"
	"coxswain.dev/controlplane/internal/control"
	"coxswain.dev/controlplane/internal/supervise"
)

const ctlUsage = `Usage: controlplane ctl --dir DIR COMMAND [ARGUMENT...]
  list                                 the components and their state (--json for all of it)
  cluster                              what up printed: addresses, files, process ids
  kill|stop|start|restart|pause|resume NAME
                                       SIGKILL; SIGTERM and wait; same ports and wait until ready; both; SIGSTOP; SIGCONT
  add NAME PROGRAM [ARGUMENT...]       run a further component
  add-manager NAME PROGRAM [ARGUMENT...]
                                       run a further controller manager, with the cluster's usual flags and a free port
  remove NAME                          stop a component and forget it
  identity NAME [GROUP...]             make NAME.kubeconfig for a user of that name
`

const downPoll = 50 * time.Millisecond

func ctl(ctx context.Context, args []string) error {
	set := flag.NewFlagSet("controlplane ctl", flag.ContinueOnError)
	set.Usage = func() { fmt.Fprint(set.Output(), ctlUsage) }
	dir := set.String("dir", "", "")
	asJSON := set.Bool("json", false, "")
	if err := set.Parse(args); err != nil {
		return err
	}
	if *dir == "" || set.NArg() == 0 {
		set.Usage()
		return flag.ErrHelp
	}
	request, err := parseCommand(set.Args())
	if err != nil {
		return err
	}
	report, err := cluster.ReadReport(*dir)
	if err != nil {
		return err
	}
	text, err := control.NewClient(report.Socket).Call(ctx, request.method, request.path, request.body)
	if err != nil {
		return err
	}
	if request.table && !*asJSON {
		return printTable(text)
	}
	_, err = os.Stdout.Write(text)
	return err
}

// command is a command line translated into a request.
type command struct {
	method, path string
	body         any
	table        bool // the answer is a list of components
}

func parseCommand(args []string) (command, error) {
	name, rest := args[0], args[1:]
	need := func(least, most int) error {
		if len(rest) < least || (most >= 0 && len(rest) > most) {
			return fmt.Errorf("wrong number of arguments for %s\n%s", name, ctlUsage)
		}
		return nil
	}
	switch name {
	case "list":
		return command{method: http.MethodGet, path: "/components", table: true}, need(0, 0)
	case "cluster":
		return command{method: http.MethodGet, path: "/cluster"}, need(0, 0)
	case "kill", "stop", "start", "restart", "pause", "resume":
		if err := need(1, 1); err != nil {
			return command{}, err
		}
		return command{method: http.MethodPost, path: "/components/" + rest[0] + "/" + name}, nil
	case "remove":
		if err := need(1, 1); err != nil {
			return command{}, err
		}
		return command{method: http.MethodDelete, path: "/components/" + rest[0]}, nil
	case "add", "add-manager":
		if err := need(2, -1); err != nil {
			return command{}, err
		}
		addition := cluster.Addition{Name: rest[0], Program: rest[1], Args: rest[2:], Manager: name == "add-manager"}
		// The launcher has a working directory of its own.
		if filepath.Base(addition.Program) != addition.Program {
			program, err := filepath.Abs(addition.Program)
			if err != nil {
				return command{}, err
			}
			addition.Program = program
		}
		return command{method: http.MethodPost, path: "/components", body: addition}, nil
	case "identity":
		if err := need(1, -1); err != nil {
			return command{}, err
		}
		return command{method: http.MethodPost, path: "/identities",
			body: control.Identity{Name: rest[0], Groups: rest[1:]}}, nil
	default:
		return command{}, fmt.Errorf("no such command: %s\n%s", name, ctlUsage)
	}
}

func printTable(text []byte) error {
	var infos []supervise.Info
	if err := json.Unmarshal(text, &infos); err != nil {
		return err
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tSTATE\tPID\tSTARTS\tURL\tEXIT")
	for _, info := range infos {
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%s\t%s\n", info.Name, info.State, info.PID, info.Starts, info.URL, info.Exit)
	}
	return table.Flush()
}

// down asks the launcher to end and waits until it has.
func down(ctx context.Context, args []string) error {
	set := flag.NewFlagSet("controlplane down", flag.ContinueOnError)
	dir := set.String("dir", "", "`directory` of the control plane")
	if err := set.Parse(args); err != nil {
		return err
	}
	if *dir == "" || set.NArg() > 0 {
		return fmt.Errorf("down needs --dir and nothing else")
	}
	pid, err := cluster.Owner(*dir)
	if err != nil || pid == 0 {
		return err
	}
	// The signal works from the first moment of the start on, when there is no control socket yet.
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("launcher %d: %w", pid, err)
	}
	ticker := time.NewTicker(downPoll)
	defer ticker.Stop()
	for {
		if owner, err := cluster.Owner(*dir); err != nil || owner != pid {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}
