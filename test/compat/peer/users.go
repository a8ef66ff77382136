package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// lastLine is what a destination says when the user has seen enough.
const lastLine = "end"

// typed is the user of an exec session: types numbered lines, byte by byte, and reads what the terminal shows.
func typed(conn net.Conn, r *result) error {
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		keyboard(conn, stop)
	}()
	err := lines(conn, r)
	close(stop)
	<-stopped
	return err
}

// keyboard types until it is stopped, or a write fails: once the shell has ended, and otherwise a read fails too.
func keyboard(conn net.Conn, stop <-chan struct{}) {
	every := time.NewTicker(20 * time.Millisecond)
	defer every.Stop()
	for n := 0; ; n++ {
		for _, key := range []byte(strconv.Itoa(n) + "\n") {
			if _, err := conn.Write([]byte{key}); err != nil {
				return
			}
		}
		select {
		case <-stop:
			return
		case <-every.C:
		}
	}
}

// follow is the user of logs -f.
func follow(conn net.Conn, r *result) error {
	if _, err := conn.Write([]byte{0}); err != nil {
		return err
	}
	return lines(conn, r)
}

// watch is a client of the Kubernetes API that watches over HTTP/2, with client-go's timeouts.
func watch(conn net.Conn, r *result) error {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{
		Protocols:   &protocols,
		HTTP2:       &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
		DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	}
	response, err := (&http.Client{Transport: transport}).Get("http://destination/?watch=true")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return lines(response.Body, r)
}

// lines reads lines that are numbered from 0, says how many have come, and returns after the last one.
func lines(from io.Reader, r *result) error {
	scanner := bufio.NewScanner(from)
	for last := time.Now(); scanner.Scan(); last = time.Now() {
		r.PauseMs = max(r.PauseMs, since(last))
		text := scanner.Text()
		if text == lastLine {
			return nil
		}
		if text != strconv.Itoa(r.Lines) {
			return fmt.Errorf("line %q came, and line %d was next", text, r.Lines)
		}
		r.Lines++
		fmt.Println("line", r.Lines)
	}
	if err := scanner.Err(); err != nil {
		return err
	}
	return fmt.Errorf("ended after %d lines", r.Lines)
}
