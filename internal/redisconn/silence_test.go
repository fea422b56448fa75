package redisconn

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// A connection is closed when nothing was read for a while after something was written, and
// only then.
func TestSilenceConn(t *testing.T) {
	const most = time.Second
	tests := []struct {
		name   string
		do     func(c *silenceConn, answer func())
		silent bool
	}{
		{"nothing is due", func(*silenceConn, func()) {}, false},
		{"a reply came", func(c *silenceConn, answer func()) { write(c); answer() }, false},
		{"a reply came late", func(c *silenceConn, answer func()) {
			write(c)
			time.Sleep(most - 1)
			answer()
		}, false},
		{"no reply came", func(c *silenceConn, _ func()) { write(c) }, true},
		{"the second got no reply", func(c *silenceConn, answer func()) { write(c); answer(); write(c) }, true},
		{"more was written meanwhile", func(c *silenceConn, _ func()) {
			write(c)
			time.Sleep(most / 2)
			write(c)
			time.Sleep(most / 2)
		}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				here, there := net.Pipe()
				c := &silenceConn{Conn: here, most: most}
				defer c.Close()
				failed := make(chan error, 1)
				got := make(chan struct{})
				go func() {
					for {
						if _, err := c.Read(make([]byte, 1)); err != nil {
							failed <- err
							return
						}
						got <- struct{}{}
					}
				}()
				go drain(there)
				tt.do(c, func() { write(there); <-got })
				time.Sleep(most)
				synctest.Wait()
				select {
				case err := <-failed:
					if !tt.silent || !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("it was closed: %v", err)
					}
				default:
					if tt.silent {
						t.Error("it was not closed")
					}
				}
				there.Close()
			})
		})
	}
}

func write(c net.Conn) { _, _ = c.Write([]byte("x")) }

func drain(c net.Conn) {
	for b := make([]byte, 8); ; {
		if _, err := c.Read(b); err != nil {
			return
		}
	}
}
