// Reads a URL through an HTTPS proxy as Go's net/http does: by a CONNECT of HTTP/1.1, or, with -h2, through a CONNECT stream of HTTP/2.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"
)

func main() {
	proxy := flag.String("proxy", "", "the proxy's URL, with user and password")
	ca := flag.String("ca", "", "CA certificates of the proxy, and of what is behind it")
	h2 := flag.Bool("h2", false, "dial by HTTP/2")
	flag.Parse()
	if err := read(*proxy, *ca, *h2, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func read(proxy, ca string, h2 bool, target string) error {
	at, err := url.Parse(proxy)
	if err != nil {
		return err
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	config := &tls.Config{RootCAs: roots}
	transport := &http.Transport{Proxy: http.ProxyURL(at), TLSClientConfig: config, ForceAttemptHTTP2: true}
	if h2 {
		transport = &http.Transport{DialTLSContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return tunnel(ctx, at, address, config)
		}}
	}
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	response, err := client.Get(target)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(os.Stdout, response.Body)
	return err
}

// tunnel connects to address through a CONNECT stream of HTTP/2, and shakes hands there.
func tunnel(ctx context.Context, proxy *url.URL, address string, config *tls.Config) (net.Conn, error) {
	// A proxy that is offered both takes HTTP/1.1.
	only := new(http.Protocols)
	only.SetHTTP2(true)
	transport := &http.Transport{TLSClientConfig: config.Clone(), Protocols: only}
	up, send := io.Pipe()
	request := &http.Request{
		Method: http.MethodConnect,
		URL:    &url.URL{Scheme: "https", Host: proxy.Host},
		Host:   address,
		Header: http.Header{},
		Body:   up,
	}
	password, _ := proxy.User.Password()
	basic := &http.Request{Header: http.Header{}}
	basic.SetBasicAuth(proxy.User.Username(), password)
	request.Header.Set("Proxy-Authorization", basic.Header.Get("Authorization"))
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s by %s: %s", response.Status, response.Proto, response.Header.Get("Proxy-Status"))
	}
	near, far := net.Pipe()
	go func() {
		io.Copy(send, far)
		send.Close()
	}()
	go func() {
		io.Copy(far, response.Body)
		far.Close()
	}()
	inner := config.Clone()
	inner.ServerName, _, _ = net.SplitHostPort(address)
	conn := tls.Client(near, inner)
	return conn, conn.HandshakeContext(ctx)
}
