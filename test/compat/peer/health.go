package main

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/klog/v2"
)

// serveHealth serves /healthz, /readyz and /metrics until the process ends.
func serveHealth(host string, port int, ready func(*http.Request) error) {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.Handler())
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := ready(r); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, "ok")
	})
	address := net.JoinHostPort(host, strconv.Itoa(port))
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: time.Minute}
	klog.ErrorS(server.ListenAndServe(), "health server ended", "address", address)
}
