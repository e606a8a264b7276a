package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os/signal"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/quicvarint"
)

const (
	// dialTime bounds connecting to a destination.
	dialTime = 5 * time.Second
	// drainTime bounds the end of running flows.
	drainTime = 20 * time.Second
)

// number is the key of a connection's number in its requests' contexts.
type number struct{}

// runProxy serves CONNECT to the destinations that are allowed and to no others, on a UDP port of
// loopback.
func runProxy(have credentials, allow, allowUDP []string) error {
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	var connections atomic.Int64
	server := &http3.Server{
		TLSConfig: http3.ConfigureTLSConfig(&tls.Config{
			Certificates: have.certificates,
			ClientAuth:   tls.RequireAndVerifyClientCert,
			ClientCAs:    have.authority,
		}),
		QUICConfig:         &quic.Config{MaxIdleTimeout: 30 * time.Second, MaxIncomingStreams: maxFlows},
		AdditionalSettings: map[uint64]uint64{reservedSetting: 1},
		EnableDatagrams:    true,
		ConnContext: func(ctx context.Context, conn *quic.Conn) context.Context {
			this := connections.Add(1)
			go tellHandshake(conn, this)
			return context.WithValue(ctx, number{}, this)
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodConnect && r.Proto == connectUDP {
				serveUDP(w, r, allowUDP)
			} else {
				serve(w, r, allow)
			}
		}),
	}
	ended := make(chan error, 1)
	go func() { ended <- drain(server) }()
	tell("listening", map[string]any{"address": socket.LocalAddr().String()})
	if err := server.Serve(socket); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-ended
}

// drain waits for SIGTERM, sends GOAWAY, and lets running flows end.
func drain(server *http3.Server) error {
	told, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	<-told.Done()
	tell("draining", nil)
	drain, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	return server.Shutdown(drain)
}

// tellHandshake tells how the handshake ended. http3 gets connections before that, so as to send its
// settings early (RFC 9001, Section 5.7); requests arrive only after it.
func tellHandshake(conn *quic.Conn, number int64) {
	select {
	case <-conn.HandshakeComplete():
		peer := conn.ConnectionState().TLS.PeerCertificates[0].Subject.CommonName
		tell("connected", map[string]any{"connection": number, "peer": peer})
	case <-conn.Context().Done():
		cause := context.Cause(conn.Context())
		tell("refused", map[string]any{"connection": number, "error": cause.Error()})
	}
}

func serve(w http.ResponseWriter, r *http.Request, allow []string) {
	if r.Method != http.MethodConnect {
		w.WriteHeader(http.StatusNotImplemented)
		return
	}
	tell("request", map[string]any{
		"connection": r.Context().Value(number{}), "authority": r.Host, "fields": r.Header,
	})
	if !slices.Contains(allow, r.Host) {
		refuse(w, http.StatusForbidden, "http_request_denied")
		return
	}
	tcp, err := net.DialTimeout("tcp", r.Host, dialTime)
	if err != nil {
		if errors.Is(err, syscall.ECONNREFUSED) {
			refuse(w, http.StatusBadGateway, "connection_refused")
		} else {
			refuse(w, http.StatusGatewayTimeout, "connection_timeout")
		}
		return
	}
	defer tcp.Close()
	w.WriteHeader(http.StatusOK)
	str, err := w.(http3.HTTPStreamer).HTTPStream()
	if err != nil {
		tell("failed", map[string]any{"error": err.Error()})
		reset(tcp.(*net.TCPConn))
		return
	}
	// A frame of a reserved type, which the client must skip: type, length, content.
	frame := quicvarint.Append(nil, reservedFrame)
	frame = append(append(frame, 7), "ignored"...)
	if _, err := str.QUICStream().Write(frame); err != nil {
		tell("failed", map[string]any{"error": err.Error()})
	}
	end := relay(tcp.(*net.TCPConn), str)
	end["authority"] = r.Host
	tell("end", end)
}

// refuse answers in the words of RFC 9209.
func refuse(w http.ResponseWriter, status int, reason string) {
	w.Header().Set("Proxy-Status", "interop; error="+reason)
	w.WriteHeader(status)
}
