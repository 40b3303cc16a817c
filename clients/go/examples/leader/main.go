// Command leader prints the identity of the leader. Usage: leader API_SERVER CA_FILE TOKEN_FILE. In a pod, InCluster
// returns the three values.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	coxswain "github.com/coxswain-dev/coxswain/clients/go"
	adminv1 "github.com/coxswain-dev/coxswain/clients/go/coxswain/admin/v1"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: leader API_SERVER CA_FILE TOKEN_FILE")
	}
	if err := run(os.Args[1], coxswain.Options{CAFile: os.Args[2], TokenFile: os.Args[3]}); err != nil {
		log.Fatal(err)
	}
}

func run(server string, pod coxswain.Options) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	leases, err := coxswain.NewAPIServer(server, pod)
	if err != nil {
		return err
	}
	leader, err := coxswain.Follow(coxswain.Finder{
		Leases: leases, Options: coxswain.Options{TokenFile: pod.TokenFile}, ClusterCAFile: pod.CAFile,
	})
	if err != nil {
		return err
	}
	defer leader.Close()
	return leader.Call(ctx, func(ctx context.Context, client *coxswain.Client) error {
		answer, err := client.Leader.GetLeader(ctx, &adminv1.GetLeaderRequest{})
		if err == nil {
			fmt.Println(answer.GetLeader().GetHolderIdentity())
		}
		return err
	})
}
