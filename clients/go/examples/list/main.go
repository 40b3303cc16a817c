// Command list prints the controllers of a running manager.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	coxswain "github.com/coxswain-dev/coxswain/clients/go"
	adminv1 "github.com/coxswain-dev/coxswain/clients/go/coxswain/admin/v1"
)

func main() {
	client, err := coxswain.Connect(os.Args[1], coxswain.Options{CAFile: os.Args[2], TokenFile: os.Args[3]})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	answer, err := client.Controllers.ListControllers(context.Background(), &adminv1.ListControllersRequest{})
	if err != nil {
		log.Fatal(err)
	}
	for _, controller := range answer.Controllers {
		fmt.Printf("%-50s %s\n", controller.Name, controller.Phase)
	}
}
