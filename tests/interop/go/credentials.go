package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
)

// credentials are what `millrace-server certificates` made.
type credentials struct {
	authority    *x509.CertPool
	certificates []tls.Certificate
}

// load reads ca.pem and, unless name is "none", the certificate of that name.
func load(dir, name string) (credentials, error) {
	path := filepath.Join(dir, "ca.pem")
	pem, err := os.ReadFile(path)
	if err != nil {
		return credentials{}, err
	}
	loaded := credentials{authority: x509.NewCertPool()}
	if !loaded.authority.AppendCertsFromPEM(pem) {
		return credentials{}, fmt.Errorf("%s: no PEM certificate in it", path)
	}
	if name == "none" {
		return loaded, nil
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key"))
	if err != nil {
		return credentials{}, err
	}
	loaded.certificates = []tls.Certificate{pair}
	return loaded, nil
}
