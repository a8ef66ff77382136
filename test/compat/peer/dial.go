package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apiserver/pkg/server/egressselector"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"
)

type dialFunc func(ctx context.Context, address string) (net.Conn, error)

// result is the result of one dial and its exercise. Times are in milliseconds.
type result struct {
	Error      string  `json:"error"`
	Stage      string  `json:"stage"` // what failed: dial or use
	Reason     string  `json:"reason"`
	DialMs     float64 `json:"dialMs"`
	UseMs      float64 `json:"useMs"`
	CloseMs    float64 `json:"closeMs"`
	CloseError string  `json:"closeError"` // konnectivity-client has one also when the other side closed first
	Bytes      int64   `json:"bytes"`
	Sha256     string  `json:"sha256"`
	Text       string  `json:"text"`
	Lines      int     `json:"lines"`
	PauseMs    float64 `json:"pauseMs"` // the longest wait for a line
}

type summary struct {
	OK      int      `json:"ok"`
	Failed  int      `json:"failed"`
	Ms      float64  `json:"ms"`
	Results []result `json:"results"`
}

type dialOptions struct {
	uds, config, egress, dest string
	exercise                  exercise
	count, concurrency        int
	timeout                   time.Duration
}

func runDial(args []string) error {
	var o dialOptions
	flags := flag.NewFlagSet("dial", flag.ContinueOnError)
	flags.StringVar(&o.uds, "uds", "", "socket of the gRPC front, dialed with konnectivity-client")
	flags.StringVar(&o.config, "config", "", "EgressSelectorConfiguration, dialed as an API server does")
	flags.StringVar(&o.egress, "egress", "cluster", "the configuration's egress: cluster, controlplane or etcd")
	flags.StringVar(&o.dest, "dest", "", "destination, host:port")
	flags.StringVar(&o.exercise.kind, "do", "get", "what to do with a tunnel: get, echo, read, hold, type, follow, watch or nothing")
	flags.Int64Var(&o.exercise.size, "size", 1<<20, "bytes to echo")
	flags.IntVar(&o.count, "count", 1, "dials")
	flags.IntVar(&o.concurrency, "concurrency", 1, "dials at the same time")
	flags.DurationVar(&o.timeout, "timeout", 30*time.Second, "limit of one dial")
	if err := flags.Parse(args); err != nil {
		return err
	}
	dial, err := o.dialer()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(o.run(dial))
}

func (o *dialOptions) dialer() (dialFunc, error) {
	switch {
	case o.uds != "":
		return func(ctx context.Context, address string) (net.Conn, error) {
			return dialGRPC(ctx, o.uds, address)
		}, nil
	case o.config != "":
		return egressDialer(o.config, o.egress)
	}
	return nil, errors.New("needs --uds or --config")
}

// dialGRPC opens one gRPC connection for one tunnel, as every API server does.
func dialGRPC(ctx context.Context, uds, address string) (net.Conn, error) {
	toSocket := func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", uds)
	}
	tunnel, err := client.CreateSingleUseGrpcTunnelWithContext(ctx, context.Background(), uds,
		grpc.WithContextDialer(toSocket), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return tunnel.DialContext(ctx, "tcp", address)
}

// egressDialer makes a dialer from a configuration file, as the API server does.
func egressDialer(path, egress string) (dialFunc, error) {
	config, err := egressselector.ReadEgressSelectorConfiguration(path)
	if err != nil {
		return nil, err
	}
	if errs := egressselector.ValidateEgressSelectorConfiguration(config); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	selector, err := egressselector.NewEgressSelector(config)
	if err != nil {
		return nil, err
	}
	kinds := map[string]egressselector.EgressType{
		"cluster": egressselector.Cluster, "controlplane": egressselector.ControlPlane, "etcd": egressselector.Etcd,
	}
	dial, err := selector.Lookup(kinds[egress].AsNetworkContext())
	if err != nil {
		return nil, err
	}
	if dial == nil {
		return nil, fmt.Errorf("no egress %q in %s", egress, path)
	}
	return func(ctx context.Context, address string) (net.Conn, error) { return dial(ctx, "tcp", address) }, nil
}

func (o *dialOptions) run(dial dialFunc) summary {
	start := time.Now()
	results := make([]result, o.count)
	var running sync.WaitGroup
	places := make(chan struct{}, o.concurrency)
	for i := range results {
		places <- struct{}{}
		running.Add(1)
		go func() {
			defer func() { <-places; running.Done() }()
			results[i] = o.once(dial)
		}()
	}
	running.Wait()
	sum := summary{Results: results, Ms: since(start)}
	for _, r := range results {
		if r.Error == "" {
			sum.OK++
		} else {
			sum.Failed++
		}
	}
	return sum
}

func (o *dialOptions) once(dial dialFunc) (r result) {
	ctx, cancel := context.WithTimeout(context.Background(), o.timeout)
	defer cancel()
	start := time.Now()
	conn, err := dial(ctx, o.dest)
	r.DialMs = since(start)
	if err != nil {
		_, reason := client.GetDialFailureReason(err)
		r.Error, r.Stage, r.Reason = err.Error(), "dial", string(reason)
		return r
	}
	start = time.Now()
	if err := o.exercise.run(conn, &r); err != nil {
		r.Error, r.Stage = err.Error(), "use"
	}
	r.UseMs = since(start)
	start = time.Now()
	if err := conn.Close(); err != nil {
		r.CloseError = err.Error()
	}
	r.CloseMs = since(start)
	return r
}

func since(start time.Time) float64 {
	return float64(time.Since(start).Microseconds()) / 1000
}
