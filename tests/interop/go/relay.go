package main

import (
	"errors"
	"io"
	"net"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// stream is what a client's http3.RequestStream and a server's http3.Stream have in common.
type stream interface {
	io.ReadWriteCloser
	CancelRead(quic.StreamErrorCode)
	CancelWrite(quic.StreamErrorCode)
}

// relay carries bytes both ways and keeps their ends apart: FIN is the end of one direction, a
// reset ends both (RFC 9114, Section 4.4). It returns how the flow ended, for an event.
func relay(tcp *net.TCPConn, str stream) map[string]any {
	failed := make(chan error, 2)
	go func() {
		_, err := io.Copy(str, tcp)
		if err == nil {
			err = str.Close()
		}
		failed <- err
	}()
	go func() {
		_, err := io.Copy(tcp, str)
		if err == nil {
			err = tcp.CloseWrite()
		}
		failed <- err
	}()
	for range 2 {
		err := <-failed
		if err == nil {
			continue
		}
		// Wakes the other direction too, which has a place for its error in the channel.
		reset(tcp)
		str.CancelRead(quic.StreamErrorCode(http3.ErrCodeConnectError))
		str.CancelWrite(quic.StreamErrorCode(http3.ErrCodeConnectError))
		if far, ok := errors.AsType[*http3.Error](err); ok {
			return map[string]any{"how": "remote_reset", "code": uint64(far.ErrorCode), "error": err.Error()}
		}
		return map[string]any{"how": "local_reset", "error": err.Error()}
	}
	tcp.Close()
	return map[string]any{"how": "complete"}
}

// reset closes with RST.
func reset(tcp *net.TCPConn) {
	// A failure means that it is closed already.
	_ = tcp.SetLinger(0)
	tcp.Close()
}
