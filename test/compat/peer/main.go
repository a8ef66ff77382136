// Command peer is the other side of the plane in tests: the real Go caller, agent and server of Konnectivity,
// from their published modules.
//
//	peer dial    an API server: konnectivity-client, or the egress selector with a configuration file
//	peer agent   the Go agent library
//	peer server  the Go server library
package main

import (
	"fmt"
	"os"
)

var commands = map[string]func(args []string) error{
	"dial":   runDial,
	"agent":  runAgent,
	"server": runServer,
}

func main() {
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: peer dial|agent|server [--name=value ...]")
		os.Exit(2)
	}
	if err := commands[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "peer %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}
