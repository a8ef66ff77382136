// Command certificates makes PKIs, good ones and bad ones, and prints what Go's crypto/x509 makes of each, as JSON.
package main

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
	"time"
)

// now is the time at which everything is judged.
var now = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// verdict is one PKI, what is asked of it, and Go's answer.
type verdict struct {
	Case  string   `json:"case"`
	Leaf  []byte   `json:"leaf"`
	Sent  [][]byte `json:"sent"`
	Roots string   `json:"roots"`
	Use   string   `json:"use"`
	Name  string   `json:"name,omitempty"`
	Now   int64    `json:"now"`
	OK    bool     `json:"ok"`
	Error string   `json:"error,omitempty"`
}

var verdicts []verdict

// asked is what a certificate must be good for. Zero: a client.
type asked struct{ use, name string }

func judge(name string, leaf []byte, sent [][]byte, roots string, ask asked) {
	if ask.use == "" {
		ask.use = "client"
	}
	if sent == nil {
		sent = [][]byte{}
	}
	found := verdict{name, leaf, sent, roots, ask.use, ask.name, now.UnixMilli(), true, ""}
	if err := verify(leaf, sent, roots, ask); err != nil {
		found.OK, found.Error = false, err.Error()
	}
	verdicts = append(verdicts, found)
}

// verify does what crypto/tls does with what a peer sends.
func verify(der []byte, sent [][]byte, roots string, ask asked) error {
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return err
	}
	options := x509.VerifyOptions{
		Roots:         x509.NewCertPool(),
		Intermediates: x509.NewCertPool(),
		CurrentTime:   now,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		DNSName:       ask.name,
	}
	if ask.use == "server" {
		options.KeyUsages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	for _, each := range sent {
		certificate, err := x509.ParseCertificate(each)
		if err != nil {
			return err
		}
		options.Intermediates.AddCert(certificate)
	}
	if err := load(options.Roots, []byte(roots)); err != nil {
		return err
	}
	_, err = leaf.Verify(options)
	return err
}

// load does what k8s.io/client-go/util/cert.ParseCertsPEM does, with which upstream reads CA files: a certificate that does not parse
// refuses the whole file, and so does a file without any.
func load(pool *x509.CertPool, rest []byte) error {
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" || len(block.Headers) != 0 {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return err
		}
		pool.AddCert(certificate)
	}
	return nil
}

// bundle returns certificates as a file of PEM blocks.
func bundle(certificates ...[]byte) string {
	text := ""
	for _, der := range certificates {
		text += string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	return text
}

func main() {
	chains()
	bundles()
	times()
	purposes()
	hosts()
	constraints()
	algorithms()
	malformed()
	random(500)
	mutated(400)
	mixed(400)
	if err := json.NewEncoder(os.Stdout).Encode(verdicts); err != nil {
		panic(err)
	}
}
