package respapi

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
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
	if s := f.store.Stats(); len(f.records) > 0 || s.Keys > 0 {
		t.Errorf("%d decisions, %+v", len(f.records), s)
	}
}

// A command without authentication counts as a failure. Connecting, authenticating and a reload do not.
func TestFailuresAreCounted(t *testing.T) {
	f := newFixture(t, "alice")
	counts := func() string {
		var list []string
		f.state.Load().Authenticator.Failures.Each(func(kind, reason string, n uint64) {
			if n > 0 {
				list = append(list, fmt.Sprintf("%s %s %d", kind, reason, n))
			}
		})
		return strings.Join(list, ", ")
	}
	f.play("RESET\r\n", "AUTH "+tokenOf("alice")+"\r\n", "PING\r\n", "QUIT\r\n")
	if got := counts(); got != "" {
		t.Errorf("after a login: %s", got)
	}
	f.play("PING\r\n", "WEIR.CHECK tight k\r\n", "AUTH wrong\r\n", "AUTH bob "+tokenOf("alice")+"\r\n", "AUTH \"\"\r\n", "PING\r\n")
	if got, want := counts(), "client missing 4, client unknown 2"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	f.setClients(t, false, "alice=tight")
	f.play("AUTH "+tokenOf("alice")+"\r\n", "WEIR.PEEK default k\r\n", "WEIR.PEEK tight k\r\n")
	if got, want := counts(), "client forbidden 1"; got != want {
		t.Errorf("%s, want %s", got, want)
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
	f.want(t, "PING", "+PONG", "AUTH wrong", wrongpass, `AUTH ""`, wrongpass, "PING", "+PONG", "AUTH alice "+tokenOf("alice"), "+OK", "PING", "+PONG")
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

// A client may use the classes that it was granted, and the only one need not be named, also in a
// pipeline and after another client has used the connection.
func TestClassesOfClients(t *testing.T) {
	f := newFixture(t, "alice", "bob=jobs/realtime", "carol=jobs/other")
	const forbidden = `-NOPERM the client bob may not use the class "backfill"`
	f.want(t,
		"AUTH "+tokenOf("bob"), "+OK",
		"WEIR.CHECK jobs k 6", "*5\r\n:1\r\n:6\r\n:0\r\n:0\r\n:1000",
		"WEIR.CHECK jobs k CLASS realtime", "*5\r\n:0\r\n:6\r\n:0\r\n:167\r\n:1000",
		"WEIR.CHECK jobs k CLASS backfill", forbidden,
		"WEIR.PEEK jobs k CLASS backfill", forbidden,
		"WEIR.RESERVE jobs k 1 CLASS backfill", forbidden,
		"WEIR.CHECK jobs k CLASS nothing", `-NOPERM the client bob may not use the class "nothing"`,
		"AUTH "+tokenOf("carol"), "+OK",
		"WEIR.CHECK jobs k", `-NOPERM the client carol may not use any class of the policy "jobs"`,
		"AUTH "+tokenOf("alice"), "+OK",
		"WEIR.CHECK jobs k 4", "*5\r\n:1\r\n:4\r\n:0\r\n:0\r\n:1000")
	f.play("AUTH bob "+tokenOf("bob")+"\r\n", strings.Repeat("WEIR.CHECK jobs p\r\n", 7))
	if got := f.classes(7); got != strings.Repeat("realtime ", 7) {
		t.Errorf("the pipeline was charged to %s", got)
	}
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
	const notYours = "-ERR the id is no reservation of this client: it is what reserve returned"
	f.want(t, bob, "+OK", "WEIR.COMMIT "+id, notYours, "WEIR.CANCEL "+id, notYours, "WEIR.RENEW "+id, notYours)
	f.want(t, alice, "+OK",
		"WEIR.RENEW "+id+" 5000", "*2\r\n:1\r\n:5000",
		"WEIR.COMMIT "+id+" 1", "*3\r\n:1\r\n:0\r\n:0",
		"WEIR.COMMIT "+id+" 1", "*3\r\n:1\r\n:0\r\n:0", // once more is the same
		"WEIR.RENEW "+id, "*2\r\n:0\r\n:0",
		"WEIR.PEEK tight k", "*5\r\n:1\r\n:2\r\n:1\r\n:0\r\n:500")
}

// Wrong tokens are throttled for each network. The right one is served, whatever else comes from there.
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
	for _, line := range []string{"AUTH wrong", "AUTH bob " + tokenOf("alice"), "HELLO 3 AUTH default wrong"} {
		if got := from("2001:db8::ffff", line); !strings.HasPrefix(got, "-ERR too many wrong tokens came from this address; the next may come after ") {
			t.Errorf("%s: %q", line[:10], got)
		}
	}
	if got := from("2001:db8:0:1::1", "AUTH wrong"); got != wrongpass+"\r\n" {
		t.Errorf("another network: %q", got)
	}
	for _, line := range []string{"AUTH " + tokenOf("alice"), "AUTH alice " + tokenOf("alice"), "HELLO 2 AUTH default " + tokenOf("alice")} {
		if got := from("2001:db8::ffff", line); strings.HasPrefix(got, "-") {
			t.Errorf("the right token: %q", got)
		}
	}
}

// Two wrong tokens a second for a minute, from an address: the right one there is served every time.
func TestWrongTokensOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, "alice")
		wrong := map[string]int{}
		for range 120 {
			code, _, _ := strings.Cut(f.play("AUTH wrong\r\n")[0], " ")
			wrong[code]++
			f.want(t, "AUTH alice "+tokenOf("alice"), "+OK", "PING", "+PONG")
			time.Sleep(time.Second / 2)
		}
		if wrong["-WRONGPASS"] != 39 || wrong["-ERR"] != 81 { // 20, and one every three seconds
			t.Errorf("wrong tokens got %v", wrong)
		}
	})
}
