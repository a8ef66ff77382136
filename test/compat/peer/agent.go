package main

import (
	"flag"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"k8s.io/klog/v2"
	"sigs.k8s.io/apiserver-network-proxy/pkg/agent"
)

// runAgent runs the Go agent library. Its flags have the names of proxy-agent's flags.
func runAgent(args []string) error {
	var tls files
	var host, healthHost string
	var port, healthPort int
	var keepaliveTime time.Duration
	var o agent.ClientSetConfig
	flags := flag.NewFlagSet("agent", flag.ContinueOnError)
	klog.InitFlags(flags)
	tls.flags(flags, "ca-cert", "agent-cert", "agent-key")
	flags.StringVar(&host, "proxy-server-host", "127.0.0.1", "")
	flags.IntVar(&port, "proxy-server-port", 8091, "")
	flags.StringVar(&healthHost, "health-server-host", "127.0.0.1", "")
	flags.IntVar(&healthPort, "health-server-port", 8093, "")
	flags.StringVar(&o.AgentID, "agent-id", "go-agent", "")
	flags.StringVar(&o.AgentIdentifiers, "agent-identifiers", "", "")
	flags.StringVar(&o.ServiceAccountTokenPath, "service-account-token-path", "", "")
	flags.DurationVar(&o.SyncInterval, "sync-interval", time.Second, "")
	flags.DurationVar(&o.SyncIntervalCap, "sync-interval-cap", 10*time.Second, "")
	flags.DurationVar(&o.ProbeInterval, "probe-interval", time.Second, "")
	flags.BoolVar(&o.SyncForever, "sync-forever", false, "")
	flags.IntVar(&o.XfrChannelSize, "xfr-channel-size", 150, "")
	flags.DurationVar(&keepaliveTime, "keepalive-time", time.Hour, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	config, err := tls.config()
	if err != nil {
		return err
	}
	config.ServerName = host
	o.Address = net.JoinHostPort(host, strconv.Itoa(port))
	o.DialOptions = []grpc.DialOption{
		grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, PermitWithoutStream: true}),
	}

	drain, stop := drainThenStop()
	agents := o.NewAgentClientSet(drain, stop)
	agents.SetServerCounter(agent.NewAggregateServerCounter(nil, agent.NewResponseBasedCounter(agents), "default"))
	agents.Serve()
	connected := agent.NewServerConnected(agents)
	go serveHealth(healthHost, healthPort, func(r *http.Request) error { return connected.Check(r) })
	<-stop
	return nil
}

// drainThenStop: the first SIGTERM drains, the second stops, as proxy-agent does.
func drainThenStop() (drain, stop chan struct{}) {
	drain, stop = make(chan struct{}), make(chan struct{})
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	go func() {
		<-signals
		close(drain)
		<-signals
		close(stop)
	}()
	return drain, stop
}
