package main

import (
	"crypto/tls"
	"errors"
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
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
	"sigs.k8s.io/apiserver-network-proxy/pkg/server"
	"sigs.k8s.io/apiserver-network-proxy/pkg/server/proxystrategies"
	"sigs.k8s.io/apiserver-network-proxy/proto/agent"
)

// runServer runs the Go server library with all of a front's transports at once, so that one process serves every caller
// of a test: gRPC and HTTP CONNECT over a unix socket each, HTTP CONNECT over mTLS.
func runServer(args []string) error {
	var callers, agents files
	var grpcUDS, connectUDS, serverID, strategies, bind, agentBind, healthBind string
	var serverPort, agentPort, healthPort, serverCount, channelSize int
	var dialTimeout, keepaliveTime time.Duration
	flags := flag.NewFlagSet("server", flag.ContinueOnError)
	klog.InitFlags(flags)
	callers.flags(flags, "server-ca-cert", "server-cert", "server-key")
	agents.flags(flags, "cluster-ca-cert", "cluster-cert", "cluster-key")
	flags.StringVar(&grpcUDS, "grpc-uds-name", "", "socket of the gRPC front")
	flags.StringVar(&connectUDS, "connect-uds-name", "", "socket of the HTTP CONNECT front")
	flags.StringVar(&serverID, "server-id", "go-server", "")
	flags.IntVar(&serverCount, "server-count", 1, "")
	flags.StringVar(&strategies, "proxy-strategies", "default", "")
	flags.StringVar(&bind, "server-bind-address", "127.0.0.1", "")
	flags.IntVar(&serverPort, "server-port", 8090, "")
	flags.StringVar(&agentBind, "agent-bind-address", "127.0.0.1", "")
	flags.IntVar(&agentPort, "agent-port", 8091, "")
	flags.StringVar(&healthBind, "health-bind-address", "127.0.0.1", "")
	flags.IntVar(&healthPort, "health-port", 8092, "")
	flags.IntVar(&channelSize, "xfr-channel-size", 10, "")
	flags.DurationVar(&dialTimeout, "backend-dial-timeout", 0, "")
	flags.DurationVar(&keepaliveTime, "keepalive-time", time.Hour, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	parsed, err := proxystrategies.ParseProxyStrategies(strategies)
	if err != nil {
		return err
	}
	callerTLS, err := callers.config()
	if err != nil {
		return err
	}
	agentTLS, err := agents.config()
	if err != nil {
		return err
	}

	proxy := server.NewProxyServer(serverID, parsed, serverCount, &server.AgentTokenAuthenticationOptions{}, channelSize)
	proxy.SetBackendDialTimeout(dialTimeout)
	ended := make(chan error, 4)
	serve := func(network, address string, serve func(net.Listener) error) {
		listener, err := net.Listen(network, address)
		if err != nil {
			ended <- err
			return
		}
		go func() { ended <- serve(listener) }()
	}

	grpcFront := grpc.NewServer()
	client.RegisterProxyServiceServer(grpcFront, proxy)
	serve("unix", grpcUDS, grpcFront.Serve)
	connectFront := &http.Server{Handler: &server.Tunnel{Server: proxy}, ReadHeaderTimeout: time.Minute}
	serve("unix", connectUDS, connectFront.Serve)
	// A CONNECT front that offered HTTP/2 could not hand over its connection.
	callerTLS.NextProtos = []string{"http/1.1"}
	serve("tcp", net.JoinHostPort(bind, strconv.Itoa(serverPort)), func(listener net.Listener) error {
		return connectFront.Serve(tls.NewListener(listener, callerTLS))
	})
	back := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(agentTLS)),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 30 * time.Second, PermitWithoutStream: true}),
	)
	agent.RegisterAgentServiceServer(back, proxy)
	serve("tcp", net.JoinHostPort(agentBind, strconv.Itoa(agentPort)), back.Serve)
	go serveHealth(healthBind, healthPort, func(*http.Request) error {
		if ready, message := proxy.Readiness.Ready(); !ready {
			return errors.New(message)
		}
		return nil
	})

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	select {
	case err := <-ended:
		return err
	case <-signals:
		return nil
	}
}
