// An HTTP/3 CONNECT client and an HTTP/3 CONNECT proxy on quic-go, as peers for Millrace, and an origin that speaks HTTP/3.
// What they are started with and what they write is in ../README.md.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
)

// Identifiers of the form 0x1f * N + 0x21 are reserved for exercising the rule that the unknown is
// ignored (RFC 9114, Sections 6.2.3, 7.2.4.1 and 7.2.8).
const (
	reservedSetting    = 0x1f*7 + 0x21
	reservedFrame      = 0x1f*5 + 0x21
	reservedStreamType = 0x1f*3 + 0x21
)

var output sync.Mutex

// tell writes one event as a line of JSON to standard output.
func tell(event string, fields map[string]any) {
	line := map[string]any{"event": event}
	for name, value := range fields {
		line[name] = value
	}
	output.Lock()
	defer output.Unlock()
	// Without its output the harness is gone, and this process with it.
	if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
		os.Exit(1)
	}
}

func main() {
	if len(os.Args) < 2 || !slices.Contains([]string{"client", "proxy", "origin"}, os.Args[1]) {
		fmt.Fprintln(os.Stderr, "usage: interop client|proxy|origin OPTIONS; see -help of each")
		os.Exit(64)
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	var (
		dir         = flags.String("dir", "", "directory of the certificates")
		certificate = flags.String("certificate", "", "name of the certificate in it, without .pem; none for none")
		server      = flags.String("server", "", "client: UDP address of the server")
		serverName  = flags.String("server-name", "", "client: name that the server's certificate must be for")
		udp         = flags.String("udp", "", "client: destinations of UDP flows, as for -allow; each gets a port")
		allowUDP    = flags.String("allow-udp", "", "proxy: destinations that are allowed for UDP")
		listen      = flags.String("listen", "", "origin: addresses, as host:port with commas between")
		allow       = flags.String("allow", "", "proxy: destinations that are allowed, as host:port with commas between")
	)
	// ExitOnError: it does not return one.
	_ = flags.Parse(os.Args[2:])
	credentials, err := load(*dir, *certificate)
	switch {
	case err != nil:
	case os.Args[1] == "client":
		err = runClient(credentials, *server, *serverName, list(*udp))
	case os.Args[1] == "origin":
		err = runOrigin(credentials, list(*listen))
	default:
		err = runProxy(credentials, list(*allow), list(*allowUDP))
	}
	if err != nil {
		tell("failed", map[string]any{"error": err.Error()})
		os.Exit(1)
	}
}

// list takes apart what has commas between.
func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}
