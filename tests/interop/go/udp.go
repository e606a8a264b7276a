package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/quicvarint"
)

const (
	connectUDP = "connect-udp"
	// udpPath is the default template's (RFC 9298, Section 2).
	udpPath = "/.well-known/masque/udp/"
	// udpIdle bounds a flow's silence.
	udpIdle = 120 * time.Second
	// maxPayload bounds what is read from a socket; what is longer is cut off there.
	maxPayload = 2048
	// Neither context nor capsule means anything to the other end, which must drop the one and skip
	// the other (RFC 9298, Section 4; RFC 9297, Sections 3.2 and 5.4).
	unknownContext  = 2
	reservedCapsule = 0x29*3 + 0x17
)

// datagrams is what a client's http3.RequestStream and a server's http3.Stream have in common.
type datagrams interface {
	stream
	SendDatagram([]byte) error
	ReceiveDatagram(context.Context) ([]byte, error)
}

// openUDPDoor offers a UDP port of loopback whose first client gets a flow to destination.
func openUDPDoor(h3 *http3.ClientConn, serverName, destination string) error {
	listener, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	tell("udp_listening", map[string]any{"address": listener.LocalAddr().String(), "destination": destination})
	go func() {
		defer listener.Close()
		if err := serveUDPListener(h3, listener, serverName, destination); err != nil {
			tell("udp_end", map[string]any{"destination": destination, "error": err.Error()})
		}
	}()
	return nil
}

func serveUDPListener(h3 *http3.ClientConn, listener *net.UDPConn, serverName, destination string) error {
	first := make([]byte, maxPayload)
	length, client, err := listener.ReadFromUDP(first)
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(destination)
	if err != nil {
		return err
	}
	str, err := h3.OpenRequestStream(context.Background())
	if err != nil {
		return err
	}
	header := http.Header{}
	header.Set("Capsule-Protocol", "?1")
	err = str.SendRequestHeader(&http.Request{
		Method: http.MethodConnect,
		Proto:  connectUDP,
		Host:   serverName,
		URL:    &url.URL{Scheme: "https", Host: serverName, Path: udpPath + host + "/" + port + "/"},
		Header: header,
	})
	if err != nil {
		return err
	}
	answer, err := str.ReadResponse()
	if err != nil {
		return err
	}
	tell("udp_answer", map[string]any{
		"destination": destination, "status": answer.StatusCode,
		"proxy_status":     answer.Header.Get("Proxy-Status"),
		"capsule_protocol": answer.Header.Get("Capsule-Protocol"),
	})
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("refused with %d", answer.StatusCode)
	}
	if err := str.SendDatagram(append([]byte{0}, first[:length]...)); err != nil {
		return err
	}
	// From here on it talks to the one client only.
	return relayUDP(str, func(into []byte) (int, error) {
		for {
			read, from, err := listener.ReadFromUDP(into)
			if err != nil || from.String() == client.String() {
				return read, err
			}
		}
	}, func(payload []byte) error {
		_, err := listener.WriteToUDP(payload, client)
		return err
	}, listener)
}

// serveUDP is the proxy's side.
func serveUDP(w http.ResponseWriter, r *http.Request, allow []string) {
	rest, found := strings.CutPrefix(r.URL.EscapedPath(), udpPath)
	parts := strings.Split(rest, "/")
	if !found || len(parts) != 3 || parts[2] != "" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	host, err := url.PathUnescape(parts[0])
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	destination := net.JoinHostPort(host, parts[1])
	tell("udp_request", map[string]any{
		"connection": r.Context().Value(number{}), "destination": destination, "authority": r.Host,
		"fields": r.Header,
	})
	if !slices.Contains(allow, destination) {
		refuse(w, http.StatusForbidden, "http_request_denied")
		return
	}
	conn, err := net.Dial("udp", destination)
	if err != nil {
		refuse(w, http.StatusBadGateway, "destination_ip_unroutable")
		return
	}
	defer conn.Close()
	w.Header().Set("Capsule-Protocol", "?1")
	w.WriteHeader(http.StatusOK)
	str, err := w.(http3.HTTPStreamer).HTTPStream()
	if err == nil {
		err = relayUDP(str, conn.Read, func(payload []byte) error {
			_, err := conn.Write(payload)
			return err
		}, conn)
	}
	tell("udp_end", map[string]any{"destination": destination, "error": fmt.Sprint(err)})
}

// relayUDP carries datagrams both ways until the stream ends, or nothing comes for too long.
func relayUDP(
	str datagrams, read func([]byte) (int, error), write func([]byte) error, near net.Conn,
) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	capsule := quicvarint.Append(nil, reservedCapsule)
	if _, err := str.Write(append(append(capsule, 7), "ignored"...)); err != nil {
		return err
	}
	if err := str.SendDatagram(append([]byte{unknownContext}, "ignored"...)); err != nil {
		return err
	}
	ends := make(chan error, 3)
	go func() {
		into := make([]byte, 1+maxPayload)
		for {
			_ = near.SetReadDeadline(time.Now().Add(udpIdle))
			length, err := read(into[1:])
			if err != nil {
				ends <- err
				return
			}
			// What does not fit is lost, as on any link.
			var tooLarge *quic.DatagramTooLargeError
			if err := str.SendDatagram(into[:1+length]); err != nil && !errors.As(err, &tooLarge) {
				ends <- err
				return
			}
		}
	}()
	go func() {
		for {
			datagram, err := str.ReceiveDatagram(ctx)
			if err != nil {
				ends <- err
				return
			}
			context, head, err := quicvarint.Parse(datagram)
			if err != nil {
				ends <- err
				return
			}
			if context != 0 {
				continue
			}
			if err := write(datagram[head:]); err != nil {
				ends <- err
				return
			}
		}
	}()
	go func() {
		// The end of the stream is the end of the flow; capsules are not for here.
		_, err := io.Copy(io.Discard, str)
		ends <- err
	}()
	err := <-ends
	str.CancelRead(quic.StreamErrorCode(http3.ErrCodeNoError))
	_ = str.Close()
	return err
}
