package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/quicvarint"
)

const (
	// handshakeTime bounds the QUIC handshake, and the head of a request at the listener.
	handshakeTime = 5 * time.Second
	// maxHeadBytes bounds that head.
	maxHeadBytes = 8 << 10
	// maxFlows bounds the flows at a time.
	maxFlows = 64
)

// runClient offers an HTTP/1.1 CONNECT listener on loopback and takes what comes there through one
// HTTP/3 connection.
func runClient(have credentials, server, serverName string, udp []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTime)
	defer cancel()
	conn, err := quic.DialAddr(ctx, server, &tls.Config{
		RootCAs:      have.authority,
		Certificates: have.certificates,
		ServerName:   serverName,
		NextProtos:   []string{http3.NextProtoH3},
	}, &quic.Config{MaxIdleTimeout: 30 * time.Second, EnableDatagrams: true})
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	transport := &http3.Transport{
		AdditionalSettings: map[uint64]uint64{reservedSetting: 1},
		EnableDatagrams:    true,
	}
	h3 := transport.NewClientConn(conn)
	// A server looks at the client's certificate only after a client's handshake has ended, so that
	// only its settings tell that it took it.
	select {
	case <-h3.ReceivedSettings():
	case <-h3.Context().Done():
		return fmt.Errorf("connecting: %w", context.Cause(h3.Context()))
	case <-ctx.Done():
		return fmt.Errorf("no settings from %s within %v", server, handshakeTime)
	}
	if err := openReservedStream(conn); err != nil {
		return fmt.Errorf("opening a stream of a reserved type: %w", err)
	}
	tell("connected", map[string]any{"settings": settings(h3.Settings())})

	for _, destination := range udp {
		if err := openUDPDoor(h3, serverName, destination); err != nil {
			return err
		}
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	tell("listening", map[string]any{"address": listener.Addr().String()})
	places := make(chan struct{}, maxFlows)
	for {
		tcp, err := listener.Accept()
		if err != nil {
			return err
		}
		places <- struct{}{}
		go func() {
			defer func() { <-places }()
			serveDoor(h3, tcp.(*net.TCPConn))
		}()
	}
}

// serveDoor takes one connection from its CONNECT request to its end.
func serveDoor(h3 *http3.ClientConn, tcp *net.TCPConn) {
	defer tcp.Close()
	_ = tcp.SetReadDeadline(time.Now().Add(handshakeTime))
	// Byte by byte, so that nothing of what follows the head is taken with it.
	head := bufio.NewReaderSize(io.LimitReader(oneByte{tcp}, maxHeadBytes), 16)
	asked, err := http.ReadRequest(head)
	if err != nil || asked.Method != http.MethodConnect {
		fmt.Fprint(tcp, "HTTP/1.1 400 Not a CONNECT request\r\n\r\n")
		return
	}
	_ = tcp.SetReadDeadline(time.Time{})

	request := &http.Request{
		Method: http.MethodConnect,
		Host:   asked.Host,
		URL:    &url.URL{Scheme: "https", Host: asked.Host, Path: "/"},
		Header: http.Header{},
		// Not empty for extended CONNECT (RFC 9220).
		Proto: asked.Header.Get("Connect-Protocol"),
	}
	str, err := h3.OpenRequestStream(context.Background())
	if err == nil {
		err = str.SendRequestHeader(request)
	}
	var answer *http.Response
	if err == nil {
		answer, err = str.ReadResponse()
	}
	if err != nil {
		tell("answer", map[string]any{"authority": asked.Host, "error": err.Error()})
		reset(tcp)
		return
	}
	proxyStatus := answer.Header.Get("Proxy-Status")
	tell("answer", map[string]any{
		"authority": asked.Host, "status": answer.StatusCode, "proxy_status": proxyStatus,
	})
	fmt.Fprintf(tcp, "HTTP/1.1 %d As received\r\n", answer.StatusCode)
	if proxyStatus != "" {
		fmt.Fprintf(tcp, "Proxy-Status: %s\r\n", proxyStatus)
	}
	fmt.Fprint(tcp, "\r\n")
	if answer.StatusCode/100 != 2 {
		str.CancelRead(quic.StreamErrorCode(http3.ErrCodeNoError))
		str.CancelWrite(quic.StreamErrorCode(http3.ErrCodeRequestCanceled))
		return
	}
	end := relay(tcp, str)
	end["authority"] = asked.Host
	tell("end", end)
}

// openReservedStream opens a unidirectional stream that the server must ignore.
func openReservedStream(conn *quic.Conn) error {
	str, err := conn.OpenUniStream()
	if err != nil {
		return err
	}
	if _, err := str.Write(append(quicvarint.Append(nil, reservedStreamType), "ignored"...)); err != nil {
		return err
	}
	return str.Close()
}

func settings(got *http3.Settings) map[string]any {
	return map[string]any{
		"extended_connect": got.EnableExtendedConnect,
		"datagrams":        got.EnableDatagrams,
		"others":           len(got.Other),
	}
}

// oneByte reads no more than a byte at a time.
type oneByte struct{ from io.Reader }

func (r oneByte) Read(into []byte) (int, error) {
	if len(into) == 0 {
		return 0, nil
	}
	return r.from.Read(into[:1])
}
