package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/leaseq/leaseq/internal/redisproc"
)

// An Authority signs certificates for a test's own servers and clients.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey

	File string // its certificate, as PEM
}

// A Pair names the two PEM files of a certificate.
type Pair struct{ CertFile, KeyFile string }

// NewAuthority makes one whose files are removed when the test ends.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: "leaseq test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	a := &Authority{t: t, cert: cert, key: key, File: filepath.Join(t.TempDir(), "ca.pem")}
	writePEM(t, a.File, "CERTIFICATE", der)
	return a
}

// Issue makes a certificate for servers and clients that is good until the given time, for host names and IP addresses.
func (a *Authority) Issue(until time.Time, hosts ...string) Pair {
	a.t.Helper()
	dir := a.t.TempDir()
	p := Pair{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	a.Renew(p, until, hosts...)
	return p
}

// Renew puts a new certificate with a new key into the files of an old one.
func (a *Authority) Renew(p Pair, until time.Time, hosts ...string) {
	a.t.Helper()
	key := newKey(a.t)
	template := &x509.Certificate{
		SerialNumber: serial(a.t), Subject: pkix.Name{CommonName: "leaseq test"},
		NotBefore: a.cert.NotBefore, NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatalf("redistest: %v", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatalf("redistest: %v", err)
	}
	writePEM(a.t, p.CertFile, "CERTIFICATE", der)
	writePEM(a.t, p.KeyFile, "PRIVATE KEY", private)
}

// ServerTLS is what a server on 127.0.0.1 needs. clients says whether its clients need a certificate: no, optional or
// yes.
func (a *Authority) ServerTLS(clients string) *redisproc.TLS {
	a.t.Helper()
	p := a.Issue(a.cert.NotAfter, "127.0.0.1", "localhost")
	return &redisproc.TLS{CertFile: p.CertFile, KeyFile: p.KeyFile, CAFile: a.File, Clients: clients}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	return key
}

func serial(t testing.TB) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 64))
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	return n
}

func writePEM(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatalf("redistest: %v", err)
	}
}
