package main

import (
	"encoding/asn1"
	"fmt"
	"math/rand"
	"sort"
	"strings"
)

// chance is true for one in so many.
func chance(r *rand.Rand, in int) bool { return r.Intn(in) == 0 }

// random judges PKIs of a few authorities with few names and keys, so that they collide, in every order.
func random(count int) {
	keys := []*key{newKey(), newKey(), newKey(), newKey(), newRSA(2048), newEd25519()}
	names := []string{"one", "two", "three"}
	for seed := range count {
		r := rand.New(rand.NewSource(int64(seed)))
		made := []*authority{}
		for range 2 + r.Intn(4) {
			made = append(made, randomCA(r, names, keys).alone())
		}
		for range r.Intn(5) {
			made = append(made, randomCA(r, names, keys).by(made[r.Intn(len(made))]))
		}
		end := client(names[r.Intn(3)])
		end.noIssuerKeyID = chance(r, 2)
		end.purposes = [][]asn1.ObjectIdentifier{nil, {clientAuth}, {clientAuth, serverAuth}, {serverAuth}}[r.Intn(4)]
		if chance(r, 2) {
			end.san = []asn1.RawValue{dns([]string{"a.example.com", "b.example.com", "example.org"}[r.Intn(3)])}
		}
		leaf := end.by(made[r.Intn(len(made))])
		sent, roots := []*authority{}, []*authority{}
		for _, at := range r.Perm(len(made)) {
			switch r.Intn(4) {
			case 0:
				roots = append(roots, made[at])
			case 1, 2:
				sent = append(sent, made[at])
			}
		}
		if chance(r, 20) {
			roots = append(roots, leaf)
		}
		ask := asked{use: []string{"client", "client", "server"}[r.Intn(3)]}
		if chance(r, 4) {
			ask.name = []string{"a.example.com", "example.org"}[r.Intn(2)]
		}
		judge(fmt.Sprintf("random %d", seed), leaf.der, ders(sent...), pool(roots...), ask)
	}
}

func randomCA(r *rand.Rand, names []string, keys []*key) spec {
	made := ca(names[r.Intn(len(names))])
	made.key = keys[r.Intn(len(keys))]
	made.noKeyID, made.noIssuerKeyID = chance(r, 3), chance(r, 3)
	if chance(r, 6) {
		made.pathLen = r.Intn(3)
	}
	if chance(r, 8) {
		made.to = now.AddDate(0, 0, -1)
	}
	if chance(r, 8) {
		made.purposes = [][]asn1.ObjectIdentifier{{serverAuth}, {clientAuth}, {anyPurpose}}[r.Intn(3)]
	}
	if chance(r, 10) {
		made.ca = no()
	}
	if chance(r, 10) {
		made.usage = bits(signs)
	}
	if chance(r, 8) {
		made.permitted = []asn1.RawValue{dns("example.com")}
	}
	if chance(r, 10) {
		made.excluded = []asn1.RawValue{dns("b.example.com")}
	}
	if chance(r, 10) {
		made.san = []asn1.RawValue{dns("authority.example.com")}
	}
	return made
}

// mutated judges certificates of which some bytes were changed before they were signed.
func mutated(count int) {
	root := ca("root").alone()
	for seed := range count {
		r := rand.New(rand.NewSource(int64(seed)))
		end := client("a")
		end.key, end.serial = root.key, 4711
		end.san = []asn1.RawValue{dns("a.example.com"), ip("10.0.0.1"), uri("spiffe://example.com/tenant/a")}
		if chance(r, 3) {
			end = ca("middle")
			end.key, end.serial = root.key, 4712
			end.permitted = []asn1.RawValue{dns("example.com"), subnet("10.0.0.0/8")}
		}
		body := end.body(root)
		for range 1 + r.Intn(2) {
			at := 4 + r.Intn(len(body)-4)
			switch r.Intn(3) {
			case 0:
				body[at] ^= 1 << r.Intn(8)
			case 1:
				body[at]++
			case 2:
				body[at] = byte(r.Intn(256))
			}
		}
		der := assemble(body, root.key, usual(root.key))
		if end.subject == "middle" {
			below := &authority{spec: end, der: der, raw: asn1.RawValue{FullBytes: name("middle")}}
			leaf := client("a")
			leaf.san = []asn1.RawValue{dns("a.example.com")}
			judge(fmt.Sprintf("mutated %d, an intermediate", seed), leaf.by(below).der, [][]byte{der}, pool(root), asked{})
			continue
		}
		judge(fmt.Sprintf("mutated %d", seed), der, nil, pool(root), asked{})
	}
}

// mixed judges by bundles whose blocks are as people, scripts and broken disks leave them.
func mixed(count int) {
	authorities := []*authority{ca("one").alone(), ca("two").alone(), ca("three").alone()}
	leaves := [][]byte{}
	for _, each := range authorities {
		leaves = append(leaves, client("a").by(each).der)
	}
	lines := func(text string, change func(int, string) string) string {
		parts := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		for index := range parts {
			parts[index] = change(index, parts[index])
		}
		return strings.Join(parts, "\n") + "\n"
	}
	last := func(text string) int { return strings.Count(text, "\n") - 1 }
	at := func(where int, line string) func(int, string) string {
		return func(index int, text string) string {
			if index == where {
				return line
			}
			return text
		}
	}
	changes := map[string]func(*rand.Rand, string) string{
		"commented by its first line": func(_ *rand.Rand, text string) string { return "# " + text },
		"commented": func(_ *rand.Rand, text string) string {
			return lines(text, func(_ int, line string) string { return "# " + line })
		},
		"cut":                     func(r *rand.Rand, text string) string { return text[:1+r.Intn(len(text)-1)] },
		"cut before a line's end": func(_ *rand.Rand, text string) string { return text[:strings.LastIndex(text, "\n-----END")+1] },
		"without its begin":       func(_ *rand.Rand, text string) string { return text[strings.Index(text, "\n")+1:] },
		"begun twice":             func(_ *rand.Rand, text string) string { return "-----BEGIN CERTIFICATE-----\n" + text },
		"ended twice":             func(_ *rand.Rand, text string) string { return text + "-----END CERTIFICATE-----\n" },
		"with bad base64":         func(_ *rand.Rand, text string) string { return strings.Replace(text, "MII", "M!I", 1) },
		"lacking a character":     func(_ *rand.Rand, text string) string { return strings.Replace(text, "MII", "MI", 1) },
		"with another end":        func(_ *rand.Rand, text string) string { return lines(text, at(last(text), "-----END X509 CRL-----")) },
		"with words behind its end": func(_ *rand.Rand, text string) string {
			return lines(text, at(last(text), "-----END CERTIFICATE----- of it"))
		},
		"with words before its end": func(_ *rand.Rand, text string) string {
			return lines(text, at(last(text), "the -----END CERTIFICATE-----"))
		},
		"with words in its begin": func(_ *rand.Rand, text string) string { return lines(text, at(0, "-----BEGIN CERTIFICATE----- of it")) },
		"in one line with its begin": func(_ *rand.Rand, text string) string {
			return strings.Replace(text, "-----\n", "-----", 1)
		},
		"with a field": func(_ *rand.Rand, text string) string {
			return lines(text, at(0, "-----BEGIN CERTIFICATE-----\nname: one\n"))
		},
		"with an empty line":    func(_ *rand.Rand, text string) string { return lines(text, at(0, "-----BEGIN CERTIFICATE-----\n")) },
		"with lines of Windows": func(_ *rand.Rand, text string) string { return strings.ReplaceAll(text, "\n", "\r\n") },
		"with blanks behind lines": func(_ *rand.Rand, text string) string {
			return lines(text, func(_ int, line string) string { return line + " \t" })
		},
		"without a line's end": func(_ *rand.Rand, text string) string { return strings.TrimSuffix(text, "\n") },
		"in one line of base64": func(_ *rand.Rand, text string) string {
			return lines(text, func(index int, line string) string {
				if index == 0 {
					return line + "\r"
				}
				return line
			})
		},
		"of no bytes": func(*rand.Rand, string) string { return bundle([]byte{}) },
		"of noise":    func(*rand.Rand, string) string { return bundle([]byte("this is no certificate")) },
		"of another kind": func(_ *rand.Rand, text string) string {
			return strings.ReplaceAll(text, "CERTIFICATE", "TRUSTED CERTIFICATE")
		},
		"of a few DER bytes":   func(*rand.Rand, string) string { return bundle([]byte{0x30, 0x03, 0x02, 0x01, 0x01}) },
		"between words":        func(_ *rand.Rand, text string) string { return "subject=CN = one\n" + text + "issuer=CN = one\n" },
		"behind an empty line": func(_ *rand.Rand, text string) string { return "\n\n" + text },
	}
	labels := []string{}
	for label := range changes {
		labels = append(labels, label)
	}
	sort.Strings(labels)
	for index := range count {
		r := rand.New(rand.NewSource(int64(index)))
		text, label := "", fmt.Sprintf("mixed %d:", index)
		for _, which := range r.Perm(len(authorities)) {
			one := pool(authorities[which])
			// The more is changed, the less is read.
			if chance(r, 2) {
				how := labels[r.Intn(len(labels))]
				label += fmt.Sprintf(" %d %s;", which, how)
				one = changes[how](r, one)
			}
			text += one
		}
		for _, leaf := range leaves {
			judge(label, leaf, nil, text, asked{})
		}
	}
}
