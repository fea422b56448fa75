package respapi

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

const (
	noauth    = "-NOAUTH Authentication required."
	wrongpass = "-WRONGPASS invalid username-password pair or user is disabled."
)

// A connection that is not authenticated cannot execute any command but AUTH and the like.
func TestNoAuth(t *testing.T) {
	f := newFixture(t, "alice")
	for _, cmd := range commands {
		if cmd.open {
			continue
		}
		for _, line := range []string{cmd.name, cmd.name + " tight k 1 1", cmd.name + " DOCS"} {
			f.want(t, line, noauth)
		}
	}
	f.want(t, "GET a", noauth, "RESET", "+RESET", "QUIT", "+OK")
	if s := f.table.Stats(); len(f.records) > 0 || s.Keys > 0 {
		t.Errorf("%d decisions, %+v", len(f.records), s)
	}
}

// A connection has little memory until it is authenticated.
func TestNoAuthIsShort(t *testing.T) {
	f := newFixture(t, "alice")
	long := strings.Repeat("x", 5<<10)
	tooLong := "-ERR Protocol error: too big inline request"
	f.want(t, "PING "+long, tooLong)
	f.want(t, "AUTH alice "+tokenOf("alice"), "+OK", "ECHO "+long, fmt.Sprintf("$%d\r\n%s", len(long), long))
	f.setClients(t, true, "alice")
	f.want(t, "ECHO "+long, fmt.Sprintf("$%d\r\n%s", len(long), long))
}

// Open accepts connections without a token, but no wrong token.
func TestOpenDoor(t *testing.T) {
	f := newFixture(t, "alice")
	f.setClients(t, true, "alice")
	f.want(t, "PING", "+PONG", "AUTH wrong", wrongpass, "PING", "+PONG", "AUTH alice "+tokenOf("alice"), "+OK", "PING", "+PONG")
}

// A reload takes effect on open connections.
func TestTokenTakenBack(t *testing.T) {
	f := newFixture(t, "alice", "bob")
	s := &script{}
	c := newConn(f.Server, s)
	say := func(line, want string) {
		t.Helper()
		s.inputs = append(s.inputs, line+"\r\n")
		c.serve()
		if got := s.replies[len(s.replies)-1]; got != want+"\r\n" {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	say("AUTH alice "+tokenOf("alice"), "+OK")
	say("PING", "+PONG")
	f.setClients(t, false, "bob")
	say("PING", noauth)
	f.setClients(t, false, "alice=tight", "bob")
	say("PING", "+PONG")
	say("WEIR.PEEK default k", `-NOPERM the client alice may not use the policy "default"`)
	f.setClients(t, true, "bob") // tokens are optional
	say("PING", noauth)
	f.setClients(t, false)
	say("PING", "+PONG")
}

// A reservation belongs to the client that made it.
func TestReservationsOfClients(t *testing.T) {
	f := newFixture(t, "alice", "bob")
	alice, bob := "AUTH "+tokenOf("alice"), "AUTH "+tokenOf("bob")
	got := f.play(alice+"\r\n", "WEIR.RESERVE tight k 2\r\n")[1]
	id := strings.Split(got, "\r\n")[2]
	if !strings.HasPrefix(got, "*6\r\n$") || len(id) < 32 {
		t.Fatalf("%q has no id", got)
	}
	const notYours = "-ERR this is no reservation of this client: the id is what WEIR.RESERVE returned"
	f.want(t, bob, "+OK", "WEIR.COMMIT "+id, notYours, "WEIR.CANCEL "+id, notYours, "WEIR.RENEW "+id, notYours)
	f.want(t, alice, "+OK",
		"WEIR.RENEW "+id+" 5000", "*2\r\n:1\r\n:5000",
		"WEIR.COMMIT "+id+" 1", "*3\r\n:1\r\n:0\r\n:0",
		"WEIR.COMMIT "+id+" 1", "*3\r\n:1\r\n:0\r\n:0", // once more is the same
		"WEIR.RENEW "+id, "*2\r\n:0\r\n:0",
		"WEIR.PEEK tight k", "*5\r\n:1\r\n:2\r\n:1\r\n:0\r\n:500")
}

// Wrong tokens throttle the caller's network, and nobody else.
func TestGuessing(t *testing.T) {
	f := newFixture(t, "alice")
	from := func(ip string, line string) string {
		s := &script{inputs: []string{line + "\r\n"}, from: &net.TCPAddr{IP: net.ParseIP(ip), Port: 99}}
		newConn(f.Server, s).serve()
		return s.replies[0]
	}
	for i := range 20 {
		if got := from(fmt.Sprintf("2001:db8::%x", i), "AUTH wrong"); got != wrongpass+"\r\n" {
			t.Fatalf("guess %d: %q", i, got)
		}
	}
	for _, line := range []string{"AUTH wrong", "AUTH " + tokenOf("alice"), "HELLO 3 AUTH default " + tokenOf("alice")} {
		if got := from("2001:db8::ffff", line); !strings.HasPrefix(got, "-ERR too many wrong tokens came from this address") {
			t.Errorf("%s: %q", line[:10], got)
		}
	}
	if got := from("2001:db8:0:1::1", "AUTH "+tokenOf("alice")); got != "+OK\r\n" {
		t.Errorf("another network: %q", got)
	}
}
