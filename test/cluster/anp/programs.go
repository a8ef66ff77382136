//go:build tools

// Package anp names the programs of apiserver-network-proxy that `npm run cluster -- --build` builds from the published module in go.mod.
package anp

import (
	_ "sigs.k8s.io/apiserver-network-proxy/cmd/agent"
	_ "sigs.k8s.io/apiserver-network-proxy/cmd/server"
)
