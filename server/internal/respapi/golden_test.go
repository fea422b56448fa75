package respapi

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/golden"
)

// Every file testdata/*.txt is a session: lines as people type them, and replies to the
// byte in the golden file beside it. "wait 1s" moves the clock. TICKET is the id of the last reservation.
func TestSessions(t *testing.T) {
	for _, name := range []string{"small", "decide", "throttle", "clients"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile("testdata/" + name + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			var clients []string
			if name == "clients" {
				clients = []string{"alice=tight", "bob"}
			}
			golden.Check(t, "testdata/"+name+".golden", []byte(play(newFixture(t, clients...), string(text))))
		})
	}
}

// play runs a file. An empty line begins another connection.
func play(f *fixture, text string) string {
	var out strings.Builder
	var ticket string
	text = strings.NewReplacer("ALICE", tokenOf("alice"), "BOB", tokenOf("bob")).Replace(text)
	for _, connection := range strings.Split(strings.TrimSpace(text), "\n\n") {
		s := &script{}
		c := newConn(f.Server, s)
		c.id = 7
		for _, line := range strings.Split(connection, "\n") {
			if d, ok := strings.CutPrefix(line, "wait "); ok {
				wait, _ := time.ParseDuration(d)
				f.clock.Pass(wait)
				continue
			}
			fmt.Fprintf(&out, "> %s\n", strings.NewReplacer(tokenOf("alice"), "ALICE", tokenOf("bob"), "BOB").Replace(line))
			s.inputs = append(s.inputs, strings.ReplaceAll(line, "TICKET", ticket)+"\r\n")
			if c.closing {
				out.WriteString("  closed\n")
				continue
			}
			c.serve() // until there is no more input
			replies := strings.SplitAfter(s.replies[len(s.replies)-1], "\r\n")
			if replies[0] == "*6\r\n" && replies[1] != "$-1\r\n" { // of a reservation, whose id is random
				ticket = strings.TrimSpace(replies[2])
				replies[1], replies[2] = "$N\r\n", "TICKET\r\n"
			}
			for _, reply := range replies {
				if reply != "" {
					fmt.Fprintf(&out, "< %q\n", reply)
				}
			}
		}
		out.WriteString("\n")
	}
	return out.String()
}
