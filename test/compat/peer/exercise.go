package main

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
)

// exercise is what a caller does with a tunnel.
type exercise struct {
	kind string
	size int64
}

func (e exercise) run(conn net.Conn, r *result) error {
	switch e.kind {
	case "get":
		return get(conn, r)
	case "echo":
		return echo(conn, e.size, r)
	case "read":
		return read(conn, r)
	case "hold":
		return hold(conn, r)
	case "type":
		return typed(conn, r)
	case "follow":
		return follow(conn, r)
	case "watch":
		return watch(conn, r)
	case "nothing":
		return nil
	}
	return fmt.Errorf("unknown exercise %q", e.kind)
}

func get(conn net.Conn, r *result) error {
	request, err := http.NewRequest(http.MethodGet, "http://destination/", nil)
	if err != nil {
		return err
	}
	if err := request.Write(conn); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	r.Text, r.Bytes = string(body), int64(len(body))
	return err
}

// echo sends random bytes and compares what comes back.
func echo(conn net.Conn, size int64, r *result) error {
	sent, got := sha256.New(), sha256.New()
	written := make(chan error, 1)
	go func() {
		_, err := io.CopyN(io.MultiWriter(conn, sent), rand.Reader, size)
		written <- err
	}()
	n, err := io.CopyN(got, conn, size)
	r.Bytes, r.Sha256 = n, hex.EncodeToString(got.Sum(nil))
	if err != nil {
		return err
	}
	if err := <-written; err != nil {
		return err
	}
	if want := hex.EncodeToString(sent.Sum(nil)); want != r.Sha256 {
		return fmt.Errorf("sent %s, got back %s", want, r.Sha256)
	}
	return nil
}

// read sends first, as TLS does, and reads everything up to the end.
func read(conn net.Conn, r *result) error {
	if _, err := conn.Write([]byte{0}); err != nil {
		return err
	}
	hash := sha256.New()
	n, err := io.Copy(hash, conn)
	r.Bytes, r.Sha256 = n, hex.EncodeToString(hash.Sum(nil))
	return err
}

// hold echoes one byte, says "held", and waits until the tunnel ends.
func hold(conn net.Conn, r *result) error {
	if err := echo(conn, 1, r); err != nil {
		return err
	}
	fmt.Println("held")
	n, err := io.Copy(io.Discard, conn)
	r.Bytes += n
	return err
}
