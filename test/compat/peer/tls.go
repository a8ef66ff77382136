package main

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"os"
)

// files are the PEM files of one end of mTLS.
type files struct{ ca, cert, key string }

func (f *files) flags(flags *flag.FlagSet, ca, cert, key string) {
	flags.StringVar(&f.ca, ca, "", "certificates of the authority the other side must be of")
	flags.StringVar(&f.cert, cert, "", "own certificate")
	flags.StringVar(&f.key, key, "", "own key")
}

func (f *files) config() (*tls.Config, error) {
	pem, err := os.ReadFile(f.ca)
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("no certificate in %s", f.ca)
	}
	config := &tls.Config{
		RootCAs:    authorities,
		ClientCAs:  authorities,
		ClientAuth: tls.RequireAndVerifyClientCert,
		MinVersion: tls.VersionTLS12,
	}
	// As proxy-agent, which has a token instead.
	if f.cert == "" && f.key == "" {
		return config, nil
	}
	own, err := tls.LoadX509KeyPair(f.cert, f.key)
	config.Certificates = []tls.Certificate{own}
	return config, err
}
