// Command h2spec runs the cases of github.com/summerwind/h2spec against one port, several at a time, and prints a line of JSON for each.
// A gRPC port answers stock h2spec's requests with 415 before it checks anything else, so this program can choose the common header fields.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	"github.com/summerwind/h2spec/hpack"
	"github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/spec"
	xhpack "golang.org/x/net/http2/hpack"
)

// alone opens as many streams as a port takes, up to 100,000: others would wait for their answers too long.
const alone = "http2/5.1.2/1"

// dialTimeout is how long a connection may take. A late connection, unlike a late case, tells nothing.
const dialTimeout = 30 * time.Second

// result is the result of one case.
type result struct {
	ID       string `json:"id"`
	Desc     string `json:"desc"`
	Outcome  string `json:"outcome"`
	Expected string `json:"expected,omitempty"`
	Actual   string `json:"actual,omitempty"`
}

// fields are header fields that every request carries after its pseudo-header fields.
type fields []xhpack.HeaderField

func (f *fields) String() string { return fmt.Sprint(*f) }

func (f *fields) Set(text string) error {
	name, value, found := strings.Cut(text, "=")
	if !found {
		return errors.New("want name=value")
	}
	*f = append(*f, xhpack.HeaderField{Name: name, Value: value})
	return nil
}

func main() {
	var (
		c      = config.Config{Host: "127.0.0.1", TLS: true, Insecure: true, MaxHeaderLen: 4000}
		method = flag.String("method", "GET", "`:method` of requests")
		atOnce = flag.Int("concurrency", 16, "cases that run at a time")
		more   fields
	)
	flag.IntVar(&c.Port, "port", 0, "port of 127.0.0.1, with TLS")
	flag.StringVar(&c.Path, "path", "/", "`:path` of requests")
	flag.StringVar(&c.CertFile, "cert", "", "client certificate")
	flag.StringVar(&c.CertKeyFile, "key", "", "its key")
	flag.DurationVar(&c.Timeout, "timeout", 2*time.Second, "how long a case waits for each answer")
	flag.Var(&more, "header", "`name=value` of a header field of each request; may be repeated")
	flag.Parse()

	stock := spec.CommonHeaders
	spec.CommonHeaders = func(c *config.Config) []xhpack.HeaderField {
		headers := stock(c)
		headers[0].Value = *method
		return append(headers, more...)
	}

	var (
		cases   = make(chan func() result)
		out     = json.NewEncoder(os.Stdout)
		mutex   sync.Mutex
		workers sync.WaitGroup
	)
	for range *atOnce {
		workers.Go(func() {
			for run := range cases {
				one := run()
				mutex.Lock()
				_ = out.Encode(one)
				mutex.Unlock()
			}
		})
	}
	var last func() result
	for _, group := range []*spec.TestGroup{generic.Spec(), http2.Spec(), hpack.Spec()} {
		each(group, func(id string, tc *spec.TestCase) {
			one := func() result { return run(c, id, tc) }
			if id == alone {
				last = one
			} else {
				cases <- one
			}
		})
	}
	close(cases)
	workers.Wait()
	_ = out.Encode(last())
}

// each visits a group's cases by the ids that h2spec itself prints.
func each(group *spec.TestGroup, visit func(id string, tc *spec.TestCase)) {
	for i, tc := range append(group.Tests, group.StrictTests...) {
		visit(fmt.Sprintf("%s/%d", group.ID(), i+1), tc)
	}
	for _, inner := range group.Groups {
		each(inner, visit)
	}
}

func run(c config.Config, id string, tc *spec.TestCase) result {
	dialing := c
	dialing.Timeout = dialTimeout
	conn, err := spec.Dial(&dialing)
	if err == nil {
		defer conn.Close()
		conn.Timeout = c.Timeout
		start := time.Now()
		err = tc.Run(&c, conn)
		// h2spec accepts any close as an answer, even if a link closed only because it heard nothing.
		if took := time.Since(start); err == nil && took >= c.Timeout {
			err = fmt.Errorf("passed after %v only, by a close that answers nothing", took)
		}
	}
	one := result{ID: id, Desc: tc.Desc, Outcome: "passed"}
	var failure *spec.TestError
	switch {
	case err == nil:
	case errors.Is(err, spec.ErrSkipped):
		one.Outcome = "skipped"
	case errors.As(err, &failure):
		one.Outcome = "failed"
		one.Expected = strings.Join(failure.Expected, " | ")
		one.Actual = failure.Actual
	default:
		one.Outcome = "failed"
		one.Actual = err.Error()
	}
	return one
}
