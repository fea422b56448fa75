package rig

import (
	"io"
	"net"
	"testing"
	"time"
)

// A relay carries bytes both ways, and a reset is felt at once.
func TestRelay(t *testing.T) {
	t.Parallel()
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	relay := NewRelay(t, echo.Addr().String())
	conn, err := net.Dial("tcp", relay.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
		t.Fatalf("%q, %v", got, err)
	}
	if n := relay.Reset(0); n != 0 {
		t.Errorf("%d connections reset, want none", n)
	}
	if n := relay.Reset(1); n != 1 {
		t.Errorf("%d connections reset, want 1", n)
	}
	if _, err := conn.Read(got); err == nil {
		t.Error("the connection lives on")
	}
}
