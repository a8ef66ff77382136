package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"net"
	"time"
)

// key is a key pair, and the algorithm that it signs with unless a certificate asks for another.
type key struct {
	signer crypto.Signer
	spki   []byte
	id     []byte
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func keyOf(signer crypto.Signer) *key {
	spki := must(x509.MarshalPKIXPublicKey(signer.Public()))
	id := sha1.Sum(spki)
	return &key{signer, spki, id[:]}
}

func newKey() *key { return keyOf(must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))) }

func newRSA(bits int) *key { return keyOf(must(rsa.GenerateKey(rand.Reader, bits))) }

func newEd25519() *key {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	return keyOf(must(private, err))
}

var (
	oidSAN         = asn1.ObjectIdentifier{2, 5, 29, 17}
	oidBasic       = asn1.ObjectIdentifier{2, 5, 29, 19}
	oidConstraints = asn1.ObjectIdentifier{2, 5, 29, 30}
	oidUsage       = asn1.ObjectIdentifier{2, 5, 29, 15}
	oidPurposes    = asn1.ObjectIdentifier{2, 5, 29, 37}
	oidKeyID       = asn1.ObjectIdentifier{2, 5, 29, 14}
	oidIssuerKeyID = asn1.ObjectIdentifier{2, 5, 29, 35}

	clientAuth  = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 2}
	serverAuth  = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 1}
	anyPurpose  = asn1.ObjectIdentifier{2, 5, 29, 37, 0}
	codeSigning = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 3}
)

// spec says what a certificate is like. What is zero is absent.
type spec struct {
	subject   string
	key       *key
	from, to  time.Time
	v1        bool
	ca        *bool
	pathLen   int // -1: none
	usage     *byte
	purposes  []asn1.ObjectIdentifier
	san       []asn1.RawValue
	sanIsCrit bool
	permitted []asn1.RawValue
	excluded  []asn1.RawValue
	noKeyID   bool
	keyID     []byte
	// noIssuerKeyID leaves out the issuer's key id, issuerKeyID replaces it.
	noIssuerKeyID bool
	issuerKeyID   []byte
	more          []pkix.Extension
	algorithm     *algorithm
	serial        int64
	rawSubject    []byte
}

// authority is a certificate with its key.
type authority struct {
	spec
	der []byte
	raw asn1.RawValue
}

type tbsCertificate struct {
	Version    int `asn1:"optional,explicit,default:0,tag:0"`
	Serial     *big.Int
	Algorithm  pkix.AlgorithmIdentifier
	Issuer     asn1.RawValue
	Validity   struct{ NotBefore, NotAfter time.Time }
	Subject    asn1.RawValue
	PublicKey  asn1.RawValue
	Extensions []pkix.Extension `asn1:"omitempty,optional,explicit,tag:3"`
}

type certificate struct {
	TBS       asn1.RawValue
	Algorithm pkix.AlgorithmIdentifier
	Signature asn1.BitString
}

// algorithm signs in another way than the key's usual one.
type algorithm struct {
	id   pkix.AlgorithmIdentifier
	hash crypto.Hash
	opts crypto.SignerOpts
}

var null = asn1.RawValue{Tag: asn1.TagNull}

func usual(k *key) *algorithm {
	switch k.signer.(type) {
	case *rsa.PrivateKey:
		return &algorithm{pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11}, Parameters: null}, crypto.SHA256, nil}
	case ed25519.PrivateKey:
		return &algorithm{pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 3, 101, 112}}, 0, nil}
	}
	return &algorithm{pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2}}, crypto.SHA256, nil}
}

func (a *algorithm) sign(data []byte, by *key) []byte {
	opts := a.opts
	if opts == nil {
		opts = a.hash
	}
	if a.hash == 0 {
		return must(by.signer.Sign(rand.Reader, data, crypto.Hash(0)))
	}
	digest := a.hash.New()
	digest.Write(data)
	return must(by.signer.Sign(rand.Reader, digest.Sum(nil), opts))
}

func assemble(tbs []byte, by *key, how *algorithm) []byte {
	signature := how.sign(tbs, by)
	return must(asn1.Marshal(certificate{asn1.RawValue{FullBytes: tbs}, how.id, asn1.BitString{Bytes: signature, BitLength: 8 * len(signature)}}))
}

func name(common string) []byte {
	if common == "" {
		return must(asn1.Marshal(pkix.RDNSequence{}))
	}
	return must(asn1.Marshal(pkix.Name{CommonName: common}.ToRDNSequence()))
}

func extension(id asn1.ObjectIdentifier, critical bool, value any) pkix.Extension {
	return pkix.Extension{Id: id, Critical: critical, Value: must(asn1.Marshal(value))}
}

func (s *spec) extensions(issuer *authority) []pkix.Extension {
	found := append([]pkix.Extension{}, s.more...)
	if s.ca != nil {
		if s.pathLen >= 0 {
			found = append(found, extension(oidBasic, true, struct {
				CA      bool `asn1:"optional"`
				PathLen int
			}{*s.ca, s.pathLen}))
		} else {
			found = append(found, extension(oidBasic, true, struct {
				CA bool `asn1:"optional"`
			}{*s.ca}))
		}
	}
	if s.usage != nil {
		found = append(found, extension(oidUsage, true, asn1.BitString{Bytes: []byte{*s.usage}, BitLength: 8}))
	}
	if s.purposes != nil {
		found = append(found, extension(oidPurposes, false, s.purposes))
	}
	if s.san != nil {
		found = append(found, extension(oidSAN, s.sanIsCrit, s.san))
	}
	if s.permitted != nil || s.excluded != nil {
		found = append(found, nameConstraints(s.permitted, s.excluded))
	}
	if !s.noKeyID && s.key != nil {
		id := s.key.id
		if s.keyID != nil {
			id = s.keyID
		}
		found = append(found, extension(oidKeyID, false, id))
	}
	if !s.noIssuerKeyID {
		id := issuer.key.id
		if issuer.keyID != nil {
			id = issuer.keyID
		}
		if s.issuerKeyID != nil {
			id = s.issuerKeyID
		}
		found = append(found, extension(oidIssuerKeyID, false, struct {
			ID []byte `asn1:"optional,tag:0"`
		}{id}))
	}
	return found
}

func nameConstraints(permitted, excluded []asn1.RawValue) pkix.Extension {
	type subtree struct{ Base asn1.RawValue }
	trees := func(list []asn1.RawValue) []subtree {
		var found []subtree
		for _, each := range list {
			found = append(found, subtree{each})
		}
		return found
	}
	return extension(oidConstraints, true, struct {
		Permitted []subtree `asn1:"optional,tag:0"`
		Excluded  []subtree `asn1:"optional,tag:1"`
	}{trees(permitted), trees(excluded)})
}

var serials int64 = 1000

// body returns what is to be signed of a certificate.
func (s spec) body(issuer *authority) []byte {
	if s.from.IsZero() {
		s.from = now.AddDate(0, -1, 0)
	}
	if s.to.IsZero() {
		s.to = now.AddDate(0, 1, 0)
	}
	if s.serial == 0 {
		serials++
		s.serial = serials
	}
	subject := s.rawSubject
	if subject == nil {
		subject = name(s.subject)
	}
	how := s.algorithm
	if how == nil {
		how = usual(issuer.key)
	}
	tbs := tbsCertificate{Version: 2, Serial: big.NewInt(s.serial), Algorithm: how.id, Issuer: issuer.raw, Subject: asn1.RawValue{FullBytes: subject}, PublicKey: asn1.RawValue{FullBytes: s.key.spki}}
	tbs.Validity.NotBefore, tbs.Validity.NotAfter = s.from, s.to
	if s.v1 {
		tbs.Version = 0
	} else {
		tbs.Extensions = s.extensions(issuer)
	}
	return must(asn1.Marshal(tbs))
}

// by returns a certificate that an authority issued.
func (s spec) by(issuer *authority) *authority {
	if s.key == nil {
		s.key = newKey()
	}
	how := s.algorithm
	if how == nil {
		how = usual(issuer.key)
	}
	subject := s.rawSubject
	if subject == nil {
		subject = name(s.subject)
	}
	return &authority{s, assemble(s.body(issuer), issuer.key, how), asn1.RawValue{FullBytes: subject}}
}

// alone returns a certificate that signed itself.
func (s spec) alone() *authority {
	if s.key == nil {
		s.key = newKey()
	}
	return s.by(&authority{spec: s, raw: asn1.RawValue{FullBytes: name(s.subject)}})
}

func yes() *bool { value := true; return &value }

func no() *bool { value := false; return &value }

func bits(value byte) *byte { return &value }

// certSign is keyCertSign and cRLSign, signs is digitalSignature.
const (
	certSign = 0x06
	signs    = 0x80
)

func ca(subject string) spec {
	return spec{subject: subject, ca: yes(), pathLen: -1, usage: bits(certSign)}
}

func client(subject string) spec {
	return spec{subject: subject, purposes: []asn1.ObjectIdentifier{clientAuth}, usage: bits(signs), ca: no(), pathLen: -1, noKeyID: true}
}

func server(subject string, names ...asn1.RawValue) spec {
	made := client(subject)
	made.purposes = []asn1.ObjectIdentifier{serverAuth}
	made.san = names
	return made
}

func tagged(tag int, value []byte) asn1.RawValue {
	return asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: tag, Bytes: value}
}

func dns(name string) asn1.RawValue   { return tagged(2, []byte(name)) }
func email(name string) asn1.RawValue { return tagged(1, []byte(name)) }
func uri(name string) asn1.RawValue   { return tagged(6, []byte(name)) }

func ip(text string) asn1.RawValue {
	address := net.ParseIP(text)
	if four := address.To4(); four != nil {
		address = four
	}
	return tagged(7, address)
}

func subnet(text string) asn1.RawValue {
	_, network, err := net.ParseCIDR(text)
	must(network, err)
	return tagged(7, append(append([]byte{}, network.IP...), network.Mask...))
}

func ders(list ...*authority) [][]byte {
	found := [][]byte{}
	for _, each := range list {
		found = append(found, each.der)
	}
	return found
}

func pool(list ...*authority) string { return bundle(ders(list...)...) }
