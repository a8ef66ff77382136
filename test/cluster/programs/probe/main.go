// probe is the workload of the checks. It prints a line five times a second and every line that it reads; over HTTP it sends and receives
// bytes with their SHA-256; over TLS it is an aggregated API server and an admission webhook as well.
package main

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"time"
)

const (
	group   = "probe.isthmus.test"
	version = group + "/v1"
	sum     = "X-Sha256"
)

type object = map[string]any

func main() {
	go ticks()
	go echo()
	http.HandleFunc("/from", from)
	http.HandleFunc("/bytes", send)
	http.HandleFunc("/sum", receive)
	http.HandleFunc("/apis", groups)
	http.HandleFunc("/apis/"+version, resources)
	http.HandleFunc("/apis/"+version+"/visits", visits)
	http.HandleFunc("/validate", validate)
	go func() { log.Fatal(http.ListenAndServeTLS(":8443", os.Getenv("TLS_CERT"), os.Getenv("TLS_KEY"), nil)) }()
	log.Fatal(http.ListenAndServe(":8080", nil))
}

func ticks() {
	for i := 0; ; i++ {
		fmt.Println("tick", i)
		time.Sleep(200 * time.Millisecond)
	}
}

// echo is for `kubectl attach --stdin`.
func echo() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fmt.Println("read", lines.Text())
	}
}

func from(w http.ResponseWriter, r *http.Request) {
	host, _ := os.Hostname()
	fmt.Fprintln(w, host, "called from", r.RemoteAddr)
}

// send answers with ?n= random bytes, and their sum in a trailer. A random block is enough: bytes that are lost, repeated or swapped
// within it change the sum, because its length is prime.
func send(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(r.URL.Query().Get("n"), 10, 64)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	block := make([]byte, 65521)
	_, _ = rand.Read(block)
	hash := sha256.New()
	w.Header().Set("Trailer", sum)
	for n > 0 {
		part := block[:min(n, int64(len(block)))]
		hash.Write(part)
		if _, err := w.Write(part); err != nil {
			return
		}
		n -= int64(len(part))
	}
	w.Header().Set(sum, hex.EncodeToString(hash.Sum(nil)))
}

// receive answers with the sum of the body.
func receive(w http.ResponseWriter, r *http.Request) {
	hash := sha256.New()
	if _, err := io.Copy(hash, r.Body); err == nil {
		fmt.Fprintln(w, hex.EncodeToString(hash.Sum(nil)))
	}
}

func answer(w http.ResponseWriter, value object) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}

func groups(w http.ResponseWriter, _ *http.Request) {
	only := object{"groupVersion": version, "version": "v1"}
	named := object{"name": group, "versions": []object{only}, "preferredVersion": only}
	answer(w, object{"kind": "APIGroupList", "apiVersion": "v1", "groups": []object{named}})
}

func resources(w http.ResponseWriter, _ *http.Request) {
	visit := object{"name": "visits", "singularName": "visit", "namespaced": false, "kind": "Visit", "verbs": []string{"list", "watch"}}
	answer(w, object{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": []object{visit}})
}

func visits(w http.ResponseWriter, r *http.Request) {
	host, _ := os.Hostname()
	visit := object{"kind": "Visit", "apiVersion": version, "metadata": object{"name": host}, "from": r.RemoteAddr}
	if r.URL.Query().Has("watch") {
		watch(w, r, visit)
		return
	}
	answer(w, object{"kind": "VisitList", "apiVersion": version, "metadata": object{}, "items": []object{visit}})
}

// watch sends an event twice a second until the caller goes.
func watch(w http.ResponseWriter, r *http.Request, visit object) {
	for r.Context().Err() == nil {
		answer(w, object{"type": "MODIFIED", "object": visit})
		_ = http.NewResponseController(w).Flush()
		time.Sleep(500 * time.Millisecond)
	}
}

// validate refuses config maps with the key `refuse`.
func validate(w http.ResponseWriter, r *http.Request) {
	var review struct {
		Request struct {
			UID    string
			Object struct{ Data map[string]string }
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, refused := review.Request.Object.Data["refuse"]
	response := object{"uid": review.Request.UID, "allowed": !refused, "warnings": []string{"seen by the probe"}}
	if refused {
		response["status"] = object{"message": "refused by the probe"}
	}
	answer(w, object{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response})
}
