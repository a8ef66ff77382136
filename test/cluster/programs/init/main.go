// init is the first process of the node and of every pod. It reaps the children of processes that have gone. With a command it runs that,
// passes on what asks it to end, and ends as it does; the kernel then ends what else is in its namespace. Without one it waits to be ended.
package main

import (
	"log"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	child := start(os.Args[1:])
	for received := range signals {
		if received == syscall.SIGCHLD {
			reap(child)
		} else if child == 0 {
			return
		} else {
			_ = syscall.Kill(child, received.(syscall.Signal))
		}
	}
}

// start returns the process id of the command, or 0 if there is none.
func start(command []string) int {
	if len(command) == 0 {
		return 0
	}
	child := exec.Command(command[0], command[1:]...)
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := child.Start(); err != nil {
		log.Fatal(err)
	}
	return child.Process.Pid
}

// reap takes leave of every child that has ended, and exits if the command is one of them.
func reap(child int) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if pid <= 0 || err != nil {
			return
		}
		if pid == child {
			if status.Signaled() {
				os.Exit(128 + int(status.Signal()))
			}
			os.Exit(status.ExitStatus())
		}
	}
}
