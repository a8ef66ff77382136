package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"fmt"
	"strings"
)

func chains() {
	root := ca("root").alone()
	middle := ca("middle").by(root)
	low := ca("low").by(middle)
	leaf := client("a").by(low)
	for _, each := range []struct {
		name  string
		sent  []*authority
		roots []*authority
	}{
		{"whole chain", []*authority{low, middle}, []*authority{root}},
		{"whole chain in another order", []*authority{middle, low}, []*authority{root}},
		{"with the root", []*authority{low, middle, root}, []*authority{root}},
		{"without the intermediates", nil, []*authority{root}},
		{"without one", []*authority{low}, []*authority{root}},
		{"without the other", []*authority{middle}, []*authority{root}},
		{"the issuing intermediate is the CA", nil, []*authority{low}},
		{"the intermediate above is the CA", []*authority{low}, []*authority{middle}},
		{"all are CAs", nil, []*authority{low, middle, root}},
		{"only the issuer and the root are CAs", nil, []*authority{low, root}},
		{"the sent root is not trusted", []*authority{low, middle, root}, nil},
		{"the leaf is the CA", nil, []*authority{{der: leaf.der}}},
		{"the leaf twice", []*authority{{der: leaf.der}, low, middle}, []*authority{root}},
		{"one intermediate twice", []*authority{low, low, middle, middle}, []*authority{root}},
	} {
		judge("chains: "+each.name, leaf.der, ders(each.sent...), pool(each.roots...), asked{})
	}
	for _, length := range []int{0, 1, 2} {
		limited := ca("limited")
		limited.pathLen = length
		top := limited.by(root)
		one := ca("one").by(top)
		two := ca("two").by(one)
		self := ca("one").by(one)
		judge(fmt.Sprintf("path length %d, none below", length), client("a").by(top).der, ders(top), pool(root), asked{})
		judge(fmt.Sprintf("path length %d, one below", length), client("a").by(one).der, ders(top, one), pool(root), asked{})
		judge(fmt.Sprintf("path length %d, two below", length), client("a").by(two).der, ders(top, one, two), pool(root), asked{})
		judge(fmt.Sprintf("path length %d, one below that issued to itself", length), client("a").by(self).der, ders(top, one, self), pool(root), asked{})
		judge(fmt.Sprintf("path length %d of the trusted one", length), client("a").by(two).der, ders(one, two), pool(top), asked{})
	}
	same := client("root").by(root)
	judge("a leaf with its CA's subject", same.der, nil, pool(root), asked{})
	judge("a leaf with its intermediate's subject", client("low").by(low).der, ders(low, middle), pool(root), asked{})
	own := client("own")
	own.key = newKey()
	alone := own.alone()
	judge("a leaf that signed itself, trusted", alone.der, nil, pool(alone), asked{})
	judge("a leaf that signed itself", alone.der, nil, pool(root), asked{})
	judge("a leaf that signed itself, sent too", alone.der, ders(alone), pool(root), asked{})
	judge("no subject", client("").by(root).der, nil, pool(root), asked{})
	nameless := ca("").alone()
	judge("an issuer without a name", client("a").by(nameless).der, nil, pool(nameless), asked{})

	impostor := ca("root").alone()
	judge("another key of the CA's name", client("a").by(impostor).der, nil, pool(root), asked{})
	judge("another key of the CA's name, sent", client("a").by(impostor).der, ders(impostor), pool(root), asked{})
	fake := ca("middle").by(impostor)
	judge("another chain of equal names", client("a").by(fake).der, ders(fake, impostor), pool(root), asked{})
	notSigned := ca("middle").by(root)
	notSigned.key = newKey()
	judge("a leaf that its issuer did not sign", client("a").by(notSigned).der, ders(notSigned), pool(root), asked{})

	// Cross-signed: one way is shut, the other open.
	other := ca("other").alone()
	crossed := ca("crossed")
	crossed.key = newKey()
	good, gone := crossed.by(other), crossed
	gone.to = now.AddDate(0, 0, -1)
	expired := gone.by(root)
	below := client("a").by(good)
	judge("cross-signed, the first way expired", below.der, ders(expired, good), pool(root, other), asked{})
	judge("cross-signed, the second way expired", below.der, ders(good, expired), pool(root, other), asked{})
	judge("cross-signed, the way that is left is not trusted", below.der, ders(expired, good), pool(root), asked{})
	loopA, loopB := crossed, ca("loop")
	loopB.key = newKey()
	ab := loopB.by(&authority{spec: loopA, raw: asn1.RawValue{FullBytes: name("crossed")}})
	ba := loopA.by(&authority{spec: loopB, raw: asn1.RawValue{FullBytes: name("loop")}})
	judge("a loop of authorities", client("a").by(ba).der, ders(ab, ba), pool(root), asked{})
	judge("a loop of authorities with a way out", client("a").by(good).der, ders(ab, ba, good), pool(other), asked{})

	// What no authority is.
	plain := client("leaf")
	plain.noKeyID = false
	notCA := plain.by(root)
	judge("issued by a leaf, sent", client("a").by(notCA).der, ders(notCA), pool(root), asked{})
	judge("issued by a leaf, trusted", client("a").by(notCA).der, nil, pool(notCA), asked{})
	noUsage, noBasic, badUsage := ca("x"), ca("x"), ca("x")
	noUsage.usage, noBasic.ca, badUsage.usage = nil, nil, bits(signs)
	for label, each := range map[string]spec{"keyUsage": noUsage, "basicConstraints": noBasic, "keyCertSign": badUsage} {
		made := each.by(root)
		judge("an authority without "+label+", sent", client("a").by(made).der, ders(made), pool(root), asked{})
		judge("an authority without "+label+", trusted", client("a").by(made).der, nil, pool(made), asked{})
	}
	old := spec{subject: "v1", v1: true, noIssuerKeyID: true}
	v1 := old.by(root)
	judge("an authority of version 1, sent", client("a").by(v1).der, ders(v1), pool(root), asked{})
	judge("an authority of version 1, trusted", client("a").by(v1).der, nil, pool(v1), asked{})
	leafV1 := spec{subject: "a", v1: true}
	judge("a leaf of version 1", leafV1.by(root).der, nil, pool(root), asked{})
	none := bits(0)
	empty := ca("x")
	empty.usage = none
	judge("an authority with an empty keyUsage", client("a").by(empty.by(root)).der, nil, pool(root), asked{})

	// More candidates than signatures may be checked.
	for _, count := range []int{20, 60, 98, 99, 100, 120} {
		var all []*authority
		for range count {
			one := ca("kubernetes")
			one.noKeyID = true
			all = append(all, one.alone())
		}
		last := client("a")
		last.noIssuerKeyID = true
		judge(fmt.Sprintf("%d CAs of one name, issued by the last", count), last.by(all[count-1]).der, nil, pool(all...), asked{})
		judge(fmt.Sprintf("%d CAs of one name, issued by the first", count), last.by(all[0]).der, nil, pool(all...), asked{})
	}
	var deep []*authority
	at := root
	for index := range 12 {
		at = ca(fmt.Sprintf("deep %d", index)).by(at)
		deep = append(deep, at)
	}
	judge("12 intermediates", client("a").by(at).der, ders(deep...), pool(root), asked{})
}

func bundles() {
	one, two := ca("kubernetes").alone(), ca("kubernetes").alone()
	bare := client("a")
	bare.noIssuerKeyID = true
	for index, issuer := range []*authority{one, two} {
		label := fmt.Sprintf("two CAs of one name, issued by %d", index+1)
		judge("bundles: "+label, client("a").by(issuer).der, nil, pool(one, two), asked{})
		judge("bundles: "+label+", without key id", bare.by(issuer).der, nil, pool(one, two), asked{})
		wrong := client("a")
		wrong.issuerKeyID = []byte{1, 2, 3}
		judge("bundles: "+label+", with another key id", wrong.by(issuer).der, nil, pool(one, two), asked{})
	}
	renewed := ca("kubernetes")
	renewed.key = one.key
	renewed.to = now.AddDate(0, 0, -2)
	judge("bundles: an expired certificate of the CA before the good one", client("a").by(one).der, nil, pool(renewed.alone(), one), asked{})
	judge("bundles: an expired certificate of the CA behind the good one", client("a").by(one).der, nil, pool(one, renewed.alone()), asked{})
	judge("bundles: an expired certificate of the CA alone", client("a").by(one).der, nil, pool(renewed.alone()), asked{})
	judge("bundles: an expired CA, a good one sent", client("a").by(one).der, ders(one), pool(renewed.alone()), asked{})

	leaf := client("a").by(two).der
	good := pool(two)
	cut := pool(one)[:300] + "\n"
	corrupt := strings.Replace(pool(one), "MII", "M!!", 1)
	short := "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
	noise := "-----BEGIN CERTIFICATE-----\n" + base64.StdEncoding.EncodeToString([]byte("this is no certificate")) + "\n-----END CERTIFICATE-----\n"
	flipped := append([]byte{}, one.der...)
	flipped[4] ^= 0xff
	for label, roots := range map[string]string{
		"nothing":              "",
		"no PEM":               "hello",
		"text around":          "# my CA\n" + good + "# end\n",
		"a block cut short":    cut + good,
		"a cut block behind":   good + cut,
		"bad base64":           corrupt + good,
		"bad base64 behind":    good + corrupt,
		"bad base64 alone":     corrupt,
		"a short block":        short + good,
		"noise in a block":     noise + good,
		"a corrupt block":      bundle(flipped) + good,
		"a corrupt one behind": good + bundle(flipped),
		"a key before":         "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n" + good,
		"another kind":         strings.ReplaceAll(good, "CERTIFICATE", "X509 CERTIFICATE"),
		"a trusted one":        strings.ReplaceAll(good, "CERTIFICATE", "TRUSTED CERTIFICATE"),
		"lines of Windows":     strings.ReplaceAll(good, "\n", "\r\n"),
		"twice":                good + good,
		"trailing data":        bundle(append(append([]byte{}, two.der...), 0, 0)),
		"the other CA":         pool(one),
	} {
		judge("bundles: "+label, leaf, nil, roots, asked{})
	}
	judge("sent: noise", leaf, [][]byte{[]byte("noise")}, good, asked{})
	judge("sent: a corrupt one", leaf, [][]byte{flipped}, good, asked{})
	judge("sent: a stranger", leaf, ders(ca("stranger").alone()), good, asked{})
	judge("a leaf with trailing data", append(append([]byte{}, leaf...), 0), nil, good, asked{})
	judge("a leaf that is noise", []byte("noise"), nil, good, asked{})
}

func times() {
	for label, edge := range map[string][2]int{"past": {-20, -10}, "present": {-10, 10}, "future": {10, 20}, "from now": {0, 10}, "until now": {-10, 0}} {
		from, to := now.AddDate(0, 0, edge[0]), now.AddDate(0, 0, edge[1])
		timed := func(s spec) spec { s.from, s.to = from, to; return s }
		root := ca("root").alone()
		judge("times: leaf, "+label, timed(client("a")).by(root).der, nil, pool(root), asked{})
		middle := timed(ca("middle")).by(root)
		judge("times: intermediate, "+label, client("a").by(middle).der, ders(middle), pool(root), asked{})
		judge("times: trusted intermediate, "+label, client("a").by(middle).der, nil, pool(middle), asked{})
		top := timed(ca("root")).alone()
		judge("times: root, "+label, client("a").by(top).der, nil, pool(top), asked{})
		judge("times: root unused, "+label, client("a").by(root).der, nil, pool(top, root), asked{})
	}
	root := ca("root").alone()
	long := client("a")
	long.to = now.AddDate(60, 0, 0)
	judge("times: beyond 2049", long.by(root).der, nil, pool(root), asked{})
	long.from, long.to = now.AddDate(-70, 0, 0), now.AddDate(5000, 0, 0)
	judge("times: for ever", long.by(root).der, nil, pool(root), asked{})
	back := client("a")
	back.from, back.to = now.AddDate(0, 0, 10), now.AddDate(0, 0, -10)
	judge("times: the wrong way round", back.by(root).der, nil, pool(root), asked{})
}

func purposes() {
	sets := map[string][]asn1.ObjectIdentifier{
		"none":    nil,
		"client":  {clientAuth},
		"server":  {serverAuth},
		"both":    {clientAuth, serverAuth},
		"any":     {anyPurpose},
		"code":    {codeSigning},
		"unknown": {{1, 2, 3, 4}},
		"empty":   {},
	}
	for leaf, own := range sets {
		for above, its := range sets {
			for _, use := range []string{"client", "server"} {
				top, end := ca("root"), client("a")
				top.purposes, end.purposes = its, own
				root := top.alone()
				judge(fmt.Sprintf("purposes: %s under %s as %s", leaf, above, use), end.by(root).der, nil, pool(root), asked{use: use})
			}
		}
	}
	middle := ca("middle")
	middle.purposes = []asn1.ObjectIdentifier{serverAuth}
	root := ca("root").alone()
	between := middle.by(root)
	judge("purposes: the intermediate forbids", client("a").by(between).der, ders(between), pool(root), asked{})
	judge("purposes: the intermediate permits", server("a").by(between).der, ders(between), pool(root), asked{use: "server"})
	key := newKey()
	ways := []*authority{}
	for _, each := range [][]asn1.ObjectIdentifier{{serverAuth}, {clientAuth}} {
		way := ca("middle")
		way.key, way.purposes = key, each
		ways = append(ways, way.by(root))
	}
	judge("purposes: the second way permits", client("a").by(ways[0]).der, ders(ways...), pool(root), asked{})
	judge("purposes: the first way permits", client("a").by(ways[0]).der, ders(ways[1], ways[0]), pool(root), asked{})
	pinned := server("a").by(root)
	judge("purposes: a trusted leaf of another purpose", pinned.der, nil, pool(pinned), asked{})
}

func hosts() {
	root := ca("root").alone()
	names := []asn1.RawValue{dns("a.example.com"), dns("*.wild.example.com"), dns("UPPER.example"), dns("*"), dns("f*.example.com"),
		dns("isthmus-hub"), dns("under_score.example"), dns("-dash.example"), dns("dot.example."), dns("*.com"), ip("10.0.0.1"), ip("fd00::1"),
		dns("127.0.0.1"), dns("xn--bcher-kva.example"), dns("w.*.example")}
	leaf := server("common.example.com", names...).by(root).der
	bare := server("common.example.com").by(root).der
	for _, host := range []string{"a.example.com", "A.EXAMPLE.com", "a.example.com.", "b.example.com", "common.example.com", "x.wild.example.com",
		"x.y.wild.example.com", "wild.example.com", ".wild.example.com", "upper.example", "foo.example.com", "*", "*.wild.example.com", "isthmus-hub",
		"ISTHMUS-HUB", "isthmus-gateway", "under_score.example", "-dash.example", "dot.example.", "dot.example", "x.com", "com", "10.0.0.1", "10.0.0.2",
		"fd00::1", "fd00:0:0::1", "[fd00::1]", "[10.0.0.1]", "::ffff:10.0.0.1", "127.0.0.1", "xn--bcher-kva.example", "bücher.example", "w.x.example",
		"w.*.example", ".", "a b", "010.0.0.1", "fd00::1%eth0", "K.example"} {
		judge("hosts: "+host, leaf, nil, pool(root), asked{"server", host})
		judge("hosts without names: "+host, bare, nil, pool(root), asked{"server", host})
	}
}

func constraints() {
	sides := []struct {
		label               string
		permitted, excluded []asn1.RawValue
	}{
		{"dns", []asn1.RawValue{dns("example.com")}, nil},
		{"dns with a dot", []asn1.RawValue{dns(".example.com")}, nil},
		{"two dns", []asn1.RawValue{dns("example.com"), dns("example.org")}, nil},
		{"not dns", nil, []asn1.RawValue{dns("example.com")}},
		{"not dns with a dot", nil, []asn1.RawValue{dns(".example.com")}},
		{"not one host", nil, []asn1.RawValue{dns("a.example.com")}},
		{"part", []asn1.RawValue{dns("example.com")}, []asn1.RawValue{dns("b.example.com")}},
		{"all dns", []asn1.RawValue{dns("")}, nil},
		{"no dns at all", nil, []asn1.RawValue{dns("")}},
		{"ip", []asn1.RawValue{subnet("10.0.0.0/8")}, nil},
		{"not ip", nil, []asn1.RawValue{subnet("10.0.0.0/8")}},
		{"ipv6", []asn1.RawValue{subnet("fd00::/8")}, nil},
		{"email", []asn1.RawValue{email("example.com")}, nil},
		{"one mailbox", []asn1.RawValue{email("me@example.com")}, nil},
		{"not a mailbox", nil, []asn1.RawValue{email("me@example.com")}},
		{"mail of hosts", []asn1.RawValue{email(".example.com")}, nil},
		{"uri", []asn1.RawValue{uri("example.com")}, nil},
		{"uri with a dot", []asn1.RawValue{uri(".example.com")}, nil},
		{"not uri", nil, []asn1.RawValue{uri("example.com")}},
		{"upper case", []asn1.RawValue{dns("EXAMPLE.com")}, nil},
		{"of directories", []asn1.RawValue{{Class: asn1.ClassContextSpecific, Tag: 4, IsCompound: true, Bytes: name("x")}}, nil},
		{"bad mask", []asn1.RawValue{tagged(7, []byte{10, 0, 0, 0, 255, 0, 255, 0})}, nil},
		{"bad length", []asn1.RawValue{tagged(7, []byte{10, 0, 0})}, nil},
		{"bad dns", []asn1.RawValue{dns("exa mple.com")}, nil},
		{"a dns with a dot behind", []asn1.RawValue{dns("example.com.")}, nil},
		{"address for uris", []asn1.RawValue{uri("10.0.0.1")}, nil},
		{"bad mailbox", []asn1.RawValue{email("a@b@c")}, nil},
		{"empty", []asn1.RawValue{}, nil},
	}
	leaves := map[string][]asn1.RawValue{
		"no names":      nil,
		"the domain":    {dns("example.com")},
		"a host":        {dns("a.example.com")},
		"an upper host": {dns("A.EXAMPLE.COM")},
		"another":       {dns("a.example.net")},
		"a suffix":      {dns("notexample.com")},
		"two":           {dns("a.example.com"), dns("a.example.org")},
		"b":             {dns("b.example.com")},
		"a wildcard":    {dns("*.example.com")},
		"an ip":         {ip("10.1.2.3")},
		"another ip":    {ip("11.1.2.3")},
		"an ipv6":       {ip("fd00::1")},
		"mail":          {email("me@example.com")},
		"upper mail":    {email("Me@EXAMPLE.com")},
		"other mail":    {email("you@a.example.com")},
		"bad mail":      {email("nobody")},
		"a uri":         {uri("spiffe://example.com/tenant/a")},
		"a uri's host":  {uri("https://a.example.com:8443/x")},
		"no host":       {uri("urn:x:y")},
		"a uri with ip": {uri("https://10.0.0.1/")},
		"mixed":         {dns("a.example.com"), ip("10.0.0.1"), uri("spiffe://example.com/x"), email("me@example.com")},
		"bad dns":       {dns("a..example.com")},
		"an empty name": {dns("")},
	}
	root := ca("root").alone()
	for _, side := range sides {
		limited := ca("limited")
		limited.permitted, limited.excluded = side.permitted, side.excluded
		middle := limited.by(root)
		for label, names := range leaves {
			end := client("a")
			end.san = names
			made := end.by(middle)
			judge("constraints: "+side.label+", "+label, made.der, ders(middle), pool(root), asked{})
			if label == "a host" {
				judge("constraints: of the trusted one, "+side.label, made.der, nil, pool(middle), asked{})
				low := ca("low").by(middle)
				judge("constraints: two above, "+side.label, end.by(low).der, ders(low, middle), pool(root), asked{})
			}
		}
	}
	for label, name := range map[string]asn1.RawValue{
		"a space in a uri": uri("spiffe://exa mple/x"), "a bad escape": uri("spiffe://example/%zz"), "no ascii": dns("b\xfccher"),
		"an ip of 5 bytes": tagged(7, []byte{1, 2, 3, 4, 5}), "an unknown kind": tagged(8, []byte{1}), "a uri of nothing": uri(""), "a bad port": uri("https://a:b/"),
	} {
		for _, critical := range []bool{true, false} {
			end := client("a")
			end.san, end.sanIsCrit = []asn1.RawValue{name}, critical
			judge(fmt.Sprintf("names: %s, critical %t", label, critical), end.by(root).der, nil, pool(root), asked{})
		}
	}
}

func pss(hash crypto.Hash, id asn1.ObjectIdentifier, salt int) *algorithm {
	type parameters struct {
		Hash pkix.AlgorithmIdentifier `asn1:"explicit,tag:0"`
		MGF  pkix.AlgorithmIdentifier `asn1:"explicit,tag:1"`
		Salt int                      `asn1:"explicit,tag:2"`
	}
	hashed := pkix.AlgorithmIdentifier{Algorithm: id, Parameters: null}
	mask := pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 8}, Parameters: asn1.RawValue{FullBytes: must(asn1.Marshal(hashed))}}
	given := asn1.RawValue{FullBytes: must(asn1.Marshal(parameters{hashed, mask, salt}))}
	return &algorithm{pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 10}, Parameters: given}, hash, &rsa.PSSOptions{SaltLength: salt, Hash: hash}}
}

func algorithms() {
	rsaOID := func(last int) pkix.AlgorithmIdentifier {
		return pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, last}, Parameters: null}
	}
	ecOID := func(rest ...int) pkix.AlgorithmIdentifier {
		return pkix.AlgorithmIdentifier{Algorithm: append(asn1.ObjectIdentifier{1, 2, 840, 10045, 4}, rest...)}
	}
	sha2 := asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2}
	big, small := newRSA(2048), newRSA(1024)
	ec := newKey()
	for label, each := range map[string]struct {
		key *key
		how *algorithm
	}{
		"RSA, SHA-256":                     {big, &algorithm{rsaOID(11), crypto.SHA256, nil}},
		"RSA, SHA-384":                     {big, &algorithm{rsaOID(12), crypto.SHA384, nil}},
		"RSA, SHA-512":                     {big, &algorithm{rsaOID(13), crypto.SHA512, nil}},
		"RSA, SHA-1":                       {big, &algorithm{rsaOID(5), crypto.SHA1, nil}},
		"RSA, MD5":                         {big, &algorithm{rsaOID(4), crypto.MD5, nil}},
		"RSA of 1,024 bits":                {small, &algorithm{rsaOID(11), crypto.SHA256, nil}},
		"RSA-PSS, SHA-256":                 {big, pss(crypto.SHA256, append(sha2, 1), 32)},
		"RSA-PSS, SHA-384":                 {big, pss(crypto.SHA384, append(append(asn1.ObjectIdentifier{}, sha2...), 2), 48)},
		"RSA-PSS, SHA-512":                 {big, pss(crypto.SHA512, append(append(asn1.ObjectIdentifier{}, sha2...), 3), 64)},
		"RSA-PSS, another salt":            {big, pss(crypto.SHA256, append(append(asn1.ObjectIdentifier{}, sha2...), 1), 20)},
		"ECDSA, SHA-256":                   {ec, &algorithm{ecOID(3, 2), crypto.SHA256, nil}},
		"ECDSA, SHA-384":                   {ec, &algorithm{ecOID(3, 3), crypto.SHA384, nil}},
		"ECDSA, SHA-512":                   {ec, &algorithm{ecOID(3, 4), crypto.SHA512, nil}},
		"ECDSA, SHA-1":                     {ec, &algorithm{ecOID(1), crypto.SHA1, nil}},
		"ECDSA, another hash than it says": {ec, &algorithm{ecOID(3, 3), crypto.SHA256, nil}},
		"ECDSA that says RSA":              {ec, &algorithm{rsaOID(11), crypto.SHA256, nil}},
		"RSA that says ECDSA":              {big, &algorithm{ecOID(3, 2), crypto.SHA256, nil}},
		"an algorithm that nobody knows":   {ec, &algorithm{pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 3}}, crypto.SHA256, nil}},
		"Ed25519":                          {newEd25519(), nil},
		"P-224":                            {keyOf(must(ecdsa.GenerateKey(elliptic.P224(), rand.Reader))), nil},
		"P-384":                            {keyOf(must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))), nil},
		"P-521":                            {keyOf(must(ecdsa.GenerateKey(elliptic.P521(), rand.Reader))), nil},
	} {
		top := ca("root")
		top.key = each.key
		root := top.alone()
		end := client("a")
		end.algorithm = each.how
		judge("algorithms: "+label, end.by(root).der, nil, pool(root), asked{})
		middle := ca("middle")
		middle.algorithm = each.how
		between := middle.by(root)
		judge("algorithms: of an intermediate, "+label, client("a").by(between).der, ders(between), pool(root), asked{})
		judge("algorithms: of a trusted intermediate, "+label, client("a").by(between).der, nil, pool(between), asked{})
		weak := ca("root")
		weak.key, weak.algorithm = each.key, each.how
		self := weak.alone()
		judge("algorithms: of the root itself, "+label, client("a").by(self).der, nil, pool(self), asked{})
		holder := client("a")
		holder.key = each.key
		judge("algorithms: of the leaf's key, "+label, holder.by(ca("r").alone()).der, nil, pool(root), asked{})
	}
}

func malformed() {
	root := ca("root").alone()
	raw := func(id asn1.ObjectIdentifier, critical bool, value ...byte) pkix.Extension {
		return pkix.Extension{Id: id, Critical: critical, Value: value}
	}
	id := func(last int) asn1.ObjectIdentifier { return asn1.ObjectIdentifier{2, 5, 29, last} }
	for label, each := range map[string][]pkix.Extension{
		"unknown, critical":               {raw(asn1.ObjectIdentifier{1, 2, 3, 4}, true, 5, 0)},
		"unknown":                         {raw(asn1.ObjectIdentifier{1, 2, 3, 4}, false, 5, 0)},
		"twice":                           {raw(asn1.ObjectIdentifier{1, 2, 3, 4}, false, 5, 0), raw(asn1.ObjectIdentifier{1, 2, 3, 4}, false, 5, 0)},
		"a critical key id":               {raw(id(14), true, 4, 1, 1)},
		"a malformed key id":              {raw(id(14), false, 5, 0)},
		"malformed names":                 {raw(id(17), false, 5, 0)},
		"malformed constraints":           {raw(id(30), false, 5, 0)},
		"malformed points of lists":       {raw(id(31), false, 5, 0)},
		"points of lists":                 {raw(id(31), true, 48, 0)},
		"policies":                        {raw(id(32), true, 48, 6, 48, 4, 6, 2, 42, 3)},
		"a policy twice":                  {raw(id(32), false, 48, 12, 48, 4, 6, 2, 42, 3, 48, 4, 6, 2, 42, 3)},
		"malformed policies":              {raw(id(32), false, 5, 0)},
		"malformed mappings":              {raw(id(33), false, 5, 0)},
		"demands policies":                {raw(id(36), true, 48, 3, 128, 1, 0)},
		"malformed demands":               {raw(id(36), false, 5, 0)},
		"inhibits any policy":             {raw(id(54), true, 2, 1, 0)},
		"malformed inhibition":            {raw(id(54), false, 5, 0)},
		"issuer's names":                  {raw(id(18), true, 48, 0)},
		"freshest list":                   {raw(id(46), true, 48, 0)},
		"authority information":           {raw(asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 1}, false, 48, 0)},
		"critical authority information":  {raw(asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 1}, true, 48, 0)},
		"malformed authority information": {raw(asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 1}, false, 5, 0)},
		"empty":                           {raw(asn1.ObjectIdentifier{1, 2, 3, 4}, false)},
	} {
		end, middle := client("a"), ca("middle")
		end.more, middle.more = each, each
		judge("extensions: "+label, end.by(root).der, nil, pool(root), asked{})
		middle.noKeyID = true
		between := middle.by(root)
		judge("extensions: of an intermediate, "+label, client("a").by(between).der, ders(between), pool(root), asked{})
		judge("extensions: of a trusted one, "+label, client("a").by(between).der, nil, pool(between), asked{})
	}
	twoNames := must(asn1.Marshal(pkix.RDNSequence{{{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "a"}}, {{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "b"}}}))
	for label, subject := range map[string][]byte{
		"two names":        twoNames,
		"bad printable":    {48, 13, 49, 11, 48, 9, 6, 3, 85, 4, 3, 19, 2, 97, 64},
		"bad utf8":         {48, 13, 49, 11, 48, 9, 6, 3, 85, 4, 3, 12, 2, 0xff, 0xfe},
		"t61":              {48, 13, 49, 11, 48, 9, 6, 3, 85, 4, 3, 20, 2, 0xff, 0xfe},
		"bmp":              {48, 13, 49, 11, 48, 9, 6, 3, 85, 4, 3, 30, 2, 0, 97},
		"odd bmp":          {48, 12, 49, 10, 48, 8, 6, 3, 85, 4, 3, 30, 1, 97},
		"half a surrogate": {48, 13, 49, 11, 48, 9, 6, 3, 85, 4, 3, 30, 2, 0xd8, 0},
		"a number":         {48, 13, 49, 11, 48, 9, 6, 3, 85, 4, 3, 18, 2, 49, 50},
		"an integer":       {48, 12, 49, 10, 48, 8, 6, 3, 85, 4, 3, 2, 1, 1},
		"an empty set":     {48, 2, 49, 0},
		"a universal one":  {48, 15, 49, 13, 48, 11, 6, 3, 85, 4, 3, 28, 4, 0, 0, 0, 97},
	} {
		end := client("")
		end.rawSubject = subject
		judge("subjects: "+label, end.by(root).der, nil, pool(root), asked{})
	}
	for _, serial := range []int64{-1, 127, 128, 1 << 40} {
		end := client("a")
		end.serial = serial
		judge(fmt.Sprintf("serial %d", serial), end.by(root).der, nil, pool(root), asked{})
	}
}
