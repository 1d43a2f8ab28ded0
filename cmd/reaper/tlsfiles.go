package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// tlsFiles says how a server's certificate is checked, and which one it is shown.
type tlsFiles struct{ ca, cert, key, serverName string }

// given names the flags that were used.
func (t *tlsFiles) given() []string {
	var names []string
	for _, f := range []struct{ name, value string }{
		{"--tls-ca", t.ca}, {"--tls-cert", t.cert}, {"--tls-key", t.key}, {"--tls-server-name", t.serverName},
	} {
		if f.value != "" {
			names = append(names, f.name)
		}
	}
	return names
}

// config reads the files, and reports every problem with them.
func (t *tlsFiles) config() (*tls.Config, error) {
	var errs []error
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.serverName}
	if t.ca != "" {
		authorities, err := readCertificates("--tls-ca", t.ca)
		c.RootCAs = x509.NewCertPool()
		for _, one := range authorities {
			c.RootCAs.AddCert(one)
		}
		errs = append(errs, err)
	}
	switch {
	case t.cert != "" && t.key != "":
		pair, err := t.pair()
		errs = append(errs, err)
		// Shown to whoever asks, whatever authorities it names: then it is the server that says what is wrong with it.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair, nil }
	case t.cert != "":
		errs = append(errs, errors.New("--tls-cert without --tls-key: a client certificate needs its key, too"))
	case t.key != "":
		errs = append(errs, errors.New("--tls-key without --tls-cert: want the certificate that the key is for, too"))
	}
	return c, errors.Join(errs...)
}

// pair reads the client certificate and its key.
func (t *tlsFiles) pair() (*tls.Certificate, error) {
	_, bad := readCertificates("--tls-cert", t.cert)
	key, err := readFile("--tls-key", t.key)
	if err := errors.Join(bad, err); err != nil {
		return nil, err
	}
	cert, err := readFile("--tls-cert", t.cert)
	if err != nil {
		return nil, err
	}
	if block, _ := pem.Decode(key); block != nil && (strings.Contains(block.Type, "ENCRYPTED") || block.Headers["DEK-Info"] != "") {
		return nil, fmt.Errorf("--tls-key %s: the key is encrypted with a passphrase, which nobody could type: decrypt it, as by openssl pkey, and let only this user read it", t.key)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("--tls-key %s, for the certificate %s: %s", t.key, t.cert, strings.TrimPrefix(err.Error(), "tls: "))
	}
	return &pair, nil
}

// readCertificates reads a PEM file that must hold at least one certificate and nothing that cannot be read.
func readCertificates(flag, path string) ([]*x509.Certificate, error) {
	text, err := readFile(flag, path)
	if err != nil {
		return nil, err
	}
	var found []*x509.Certificate
	others := map[string]bool{}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			others[block.Type] = true
			continue
		}
		one, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s %s: certificate %d in it cannot be read: %s", flag, path, len(found)+1, strings.TrimPrefix(err.Error(), "x509: "))
		}
		found = append(found, one)
	}
	switch {
	case len(found) > 0:
		return found, nil
	case len(others) > 0:
		return nil, fmt.Errorf("%s %s: it holds a %s and no certificate", flag, path, list(sortedKeys(others)))
	}
	return nil, fmt.Errorf("%s %s: it holds no certificate as PEM, which begins with -----BEGIN CERTIFICATE-----", flag, path)
}

// A fileError says why a file that a flag names cannot be used.
type fileError struct {
	flag, path string // path is "" where it may be a password, given by mistake
	err        error
}

func (e *fileError) Error() string {
	if e.path == "" {
		return fmt.Sprintf("%s: %v", e.flag, e.err)
	}
	return fmt.Sprintf("%s %s: %v", e.flag, e.path, e.err)
}

// Unwrap returns the cause.
func (e *fileError) Unwrap() error { return e.err }

func readFile(flag, path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, &fileError{flag: flag, path: path, err: cause(err)}
	}
	return text, nil
}

// cause takes the name of the file out of an error, which is told anyway.
func cause(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}
