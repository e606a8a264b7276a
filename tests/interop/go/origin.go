package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"

	"github.com/quic-go/quic-go/http3"
)

// maxSegment bounds what one request may ask for, in bytes.
const maxSegment = 1 << 28

// page fetches the segments of its query one after the other and keeps what the browser says of each.
const page = `<!doctype html><title>segments</title><script>
const query = new URLSearchParams(location.search);
async function fetched(number, bytes) {
  const url = "/segment?bytes=" + bytes + "&number=" + number;
  const body = await (await fetch(url, { cache: "no-store" })).arrayBuffer();
  const timing = performance.getEntriesByName(new URL(url, location).href)[0];
  return { protocol: timing.nextHopProtocol, bytes: body.byteLength, done_ms: performance.now() };
}
(async () => {
  const segments = [];
  for (let number = 0; number < Number(query.get("segments")); number++) segments.push(await fetched(number, query.get("bytes")));
  const load = performance.getEntriesByType("navigation")[0];
  window.result = { protocol: load.nextHopProtocol, first_byte_ms: load.responseStart, segments };
})().catch((error) => { window.result = { error: String(error) }; });
</script>
`

// runOrigin serves a page and segments over HTTP/1.1 and HTTP/2 on TCP, and over HTTP/3 on the same addresses, which the
// others announce (Alt-Svc, RFC 7838).
func runOrigin(have credentials, addresses []string) error {
	servers := make(chan error)
	for _, address := range addresses {
		stream, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		packet, err := net.ListenPacket("udp", address)
		if err != nil {
			return err
		}
		handler := http.HandlerFunc(serveSegments)
		quicServer := &http3.Server{
			TLSConfig: http3.ConfigureTLSConfig(&tls.Config{Certificates: have.certificates}),
			Handler:   handler,
		}
		announce := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := quicServer.SetQUICHeaders(w.Header()); err != nil {
				tell("failed", map[string]any{"error": err.Error()})
			}
			handler(w, r)
		})
		tcpServer := &http.Server{Handler: announce, TLSConfig: &tls.Config{Certificates: have.certificates}}
		go func() { servers <- quicServer.Serve(packet) }()
		go func() { servers <- tcpServer.ServeTLS(stream, "", "") }()
		tell("listening", map[string]any{"address": address})
	}
	return <-servers
}

func serveSegments(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if r.URL.Path == "/" {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, page)
		return
	}
	bytes, err := strconv.Atoi(r.URL.Query().Get("bytes"))
	if r.URL.Path != "/segment" || err != nil || bytes < 0 || bytes > maxSegment {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "video/mp4")
	w.Header().Set("Content-Length", strconv.Itoa(bytes))
	chunk := make([]byte, 64<<10)
	sent := 0
	for sent < bytes {
		written, err := w.Write(chunk[:min(len(chunk), bytes-sent)])
		sent += written
		if err != nil {
			break
		}
	}
	tell("segment", map[string]any{"protocol": r.Proto, "bytes": sent})
}
