package server

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Whoever breaks a thousand handshakes does not fill the disk.
func TestErrorLogIsSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := newErrorLog(slog.New(slog.NewTextHandler(&out, nil)))
		for range 3 {
			for range 1000 {
				l.Print("http: TLS handshake error\nfrom somebody")
			}
			time.Sleep(time.Second)
		}
		if n := strings.Count(out.String(), "\n"); n != 3 || !strings.Contains(out.String(), "since_last_line=1000") {
			t.Errorf("%d lines: %s", n, out.String())
		}
	})
}
