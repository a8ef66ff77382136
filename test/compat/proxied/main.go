// Reads a URL through an HTTPS proxy as Go's net/http does.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"
)

func main() {
	proxy := flag.String("proxy", "", "the proxy's URL, with user and password")
	ca := flag.String("ca", "", "CA certificates of the proxy, and of what is behind it")
	flag.Parse()
	if err := read(*proxy, *ca, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func read(proxy, ca, target string) error {
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
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	response, err := client.Get(target)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(os.Stdout, response.Body)
	return err
}
