//go:build tools

// Package clusterapi names the program of Cluster API that tests build from the published modules in go.mod. Nobody can `go install` it.
package clusterapi

import _ "sigs.k8s.io/cluster-api/cmd/clusterctl"
