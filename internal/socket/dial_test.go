package socket

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"reflect"
	"testing"
)

func TestDial(t *testing.T) {
	for network, addr := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")} {
		l, err := net.Listen(network, addr)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		plain, err := net.Dial(network, l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer plain.Close()
		conn, err := Dial(t.Context(), network, l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if got, want := reflect.TypeOf(conn), reflect.TypeOf(Direct(plain)); got != want {
			t.Errorf("%s: the connection is a %v, want a %v", network, got, want)
		}
	}
}

func TestDialFails(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if conn, err := Dial(ctx, "tcp", "127.0.0.1:1"); conn != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("Dial = %v, %v", conn, err)
	}
}
