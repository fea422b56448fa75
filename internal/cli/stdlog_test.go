package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A library's message is logged up to its first quotation mark, and each text once a second.
func TestStandardLogIsRedirected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, flags, prefix := log.Writer(), log.Flags(), log.Prefix()
		var out bytes.Buffer
		restore := redirectStandardLog(slog.New(slog.NewTextHandler(&out, nil)))
		for range 3 {
			for i := range 100 {
				log.Printf("Unsolicited response starting with %q; err=<nil>", fmt.Sprint("CANARY", i))
				log.Printf("another text 'CANARY'\nCANARY")
			}
			time.Sleep(time.Second)
		}
		log.Print(strings.Repeat("long ", 1000))
		restore()
		if n := strings.Count(out.String(), `problem="Unsolicited response starting with"`); n != 3 {
			t.Errorf("%d lines, want 3", n)
		}
		if n := strings.Count(out.String(), "\n"); n != 7 || strings.Contains(out.String(), "CANARY") || out.Len() > 2000 {
			t.Errorf("%d lines, want 7: %s", n, out.String())
		}
		if log.Writer() != w || log.Flags() != flags || log.Prefix() != prefix {
			t.Error("the standard logger is not as before")
		}
	})
}

// What a provider sends after its response, net/http logs; no byte of it is in the daemon's log.
func TestBytesOfProvidersAreNotLogged(t *testing.T) {
	t.Parallel()
	const canary = "canary-0123456789"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- sendTooMuch(l, canary) }()
	d := startWith(t, fmt.Sprintf("log: {format: json}\nroutes:\n  eth:\n    kind: jsonrpc\n    upstreams:\n      - {alias: one, rpc: \"http://%s/v2/%s\", max_per_min: 60, monitored: false}\n", l.Addr(), canary), nil)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Post(d.url+"/gw/eth", "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}`))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), `"0x1"`) {
		t.Fatalf("%d %s (%v)", resp.StatusCode, body, err)
	}
	if err := <-served; err != nil { // which is when the daemon has closed the connection
		t.Fatal(err)
	}
	if _, code, err := d.signal(syscall.SIGTERM); code != exitOK || err != nil {
		t.Fatal(code, err)
	}
	text := d.stderr.String()
	if !strings.Contains(text, "Unsolicited response") || strings.Contains(text, canary) {
		t.Errorf("the log is %s", text)
	}
	for line := range strings.Lines(text) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
}

// sendTooMuch is a provider that sends a response and, when its connection should be idle, a secret. It
// returns once the connection is closed.
func sendTooMuch(l net.Listener, secret string) error {
	defer l.Close()
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	r, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return err
	}
	const answer = `{"jsonrpc":"2.0","id":1,"result":"0x1"}`
	_, err = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%sGET %s %s", len(answer), answer, r.URL, secret)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, conn) // until it is closed or reset
	return nil
}
