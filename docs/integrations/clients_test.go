package integrations

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// session is what a client has to do. "" and 0 leave it to the client. An argument @
// is the id of the last reservation.
type session struct {
	Host     string     `json:"host"`
	Port     int        `json:"port"`
	User     string     `json:"user"`
	Password string     `json:"password"`
	Name     string     `json:"name"`
	Protocol int        `json:"-"`
	Commands [][]string `json:"commands"`
	Pipeline [][]string `json:"pipeline"`
}

func (s *session) address() string { return net.JoinHostPort(s.Host, strconv.Itoa(s.Port)) }

// replies is what it gets: numbers, texts, nil, lists of these, and failure. They are those
// of JSON, so that all clients have the same.
type replies struct {
	Replies   []any `json:"replies"`
	Pipeline  any   `json:"pipeline"`
	Subscribe any   `json:"subscribe"` // what its own way to subscribe says
}

// failure is an error as a reply.
func failure(text string) any { return map[string]any{"error": text} }

// list is an array of numbers as a reply.
func list(numbers ...int) any {
	var out []any
	for _, n := range numbers {
		out = append(out, float64(n))
	}
	return out
}

// A player plays sessions, one after the other, each with a connection of its own.
type player func(t *testing.T, list []*session) []replies

// clients are those that are tried, each with the version of the protocol that it speaks if
// it chooses, and with those that it can be configured with.
var clients = []struct {
	name     string
	play     player
	protocol int
	others   []int
}{
	{"go-redis", each(playGoRedis), 3, []int{2, 3}},
	{"rueidis", each(playRueidis), 3, []int{2}},
	{"ioredis", probe("node", "testdata/probe.js"), 2, nil},
	{"redis-py", probe("python3", "testdata/probe.py"), 2, nil},
	{"Redis.pm", probe("perl", "testdata/probe.pl"), 2, nil},
}

// Unmodified clients connect, make calls, and get errors for commands that do not exist.
func TestClients(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	defer all.Wait()
	for _, c := range clients {
		all.Go(func() {
			t.Run(c.name, func(t *testing.T) {
				cases := casesOf(t, c.protocol, c.others)
				var list []*session
				for _, v := range cases {
					list = append(list, &v.session)
				}
				got := c.play(t, list)
				if len(got) != len(cases) {
					t.Fatalf("%d answers to %d sessions", len(got), len(cases))
				}
				for i, v := range cases {
					v.check(t, got[i])
				}
			})
		})
	}
}

const token = "alice-0123456789abcdef0123456789abcdef"

// testCase is a session and its expected outcome.
type testCase struct {
	session
	version int        // of the protocol
	steps   []exchange // after CLIENT INFO
	piped   []any
	refused string // the error of a connection that is refused, "" if it is accepted
}

// casesOf returns what a client is to do, with a daemon without clients and with one
// that wants a token.
func casesOf(t *testing.T, version int, others []int) (list []*testCase) {
	t.Helper()
	open := serve(t, newPatient(t), "weir.yaml").RESP
	closed := serve(t, newPatient(t), "weir.yaml", "WEIR__CLIENTS__ALICE__TOKEN="+token).RESP
	add := func(to net.Addr, s session, version int, refused string) {
		s.Host, s.Port = "127.0.0.1", to.(*net.TCPAddr).Port
		list = append(list, newTestCase(s, fmt.Sprint("key", len(list)), version, refused))
	}
	add(open, session{}, version, "")
	add(closed, session{Password: token}, version, "")
	add(closed, session{User: "alice", Password: token, Name: "worker-1"}, version, "")
	for _, other := range others {
		add(open, session{Protocol: other}, other, "")
		add(closed, session{Protocol: other, User: "alice", Password: token}, other, "")
	}
	const wrong = "invalid username-password pair or user is disabled."
	add(closed, session{Password: "wrong"}, version, wrong)
	add(closed, session{User: "bob", Password: token}, version, wrong)
	add(closed, session{}, version, "authenticat") // to HELLO it is said in other words than to the rest
	return list
}

// newTestCase returns a session with its commands.
func newTestCase(s session, key string, version int, refused string) *testCase {
	v := &testCase{session: s, version: version, refused: refused}
	v.Commands, v.Pipeline = [][]string{{"CLIENT", "INFO"}}, [][]string{}
	if refused != "" {
		return v
	}
	v.steps = exchanges(key)
	for _, x := range v.steps {
		v.Commands = append(v.Commands, strings.Fields(x.command))
	}
	for i := range 100 {
		cost := i % 6 // so that order matters
		v.Pipeline = append(v.Pipeline, []string{"WEIR.CHECK", "api", fmt.Sprint(key, "-", i), strconv.Itoa(cost)})
		v.piped = append(v.piped, list(1, 5, 5-cost, 0, 2000*cost))
	}
	return v
}

// check compares what came of a testCase.
func (v *testCase) check(t *testing.T, got replies) {
	t.Helper()
	if len(got.Replies) != len(v.Commands) {
		t.Fatalf("%s: %d replies to %d commands", v, len(got.Replies), len(v.Commands))
	}
	if v.refused != "" {
		v.want(t, "refused", got.Replies[0], failure(v.refused))
		return
	}
	v.checkInfo(t, got.Replies[0])
	for i, x := range v.steps {
		v.want(t, x.command, got.Replies[i+1], x.want)
	}
	if diff := cmp.Diff(any(v.piped), got.Pipeline); diff != "" {
		t.Errorf("%s: pipeline (-want +got):\n%s", v, diff)
	}
	v.want(t, "subscribe", got.Subscribe, failure("ERR unknown command 'SUBSCRIBE'"))
}

func (v *testCase) want(t *testing.T, what string, got, want any) {
	t.Helper()
	if !isReply(got, want) {
		t.Errorf("%s: %s: %v, want %v", v, what, got, want)
	}
}

// checkInfo looks at what CLIENT INFO tells of the connection.
func (v *testCase) checkInfo(t *testing.T, got any) {
	t.Helper()
	user := v.User
	if v.Password != "" {
		user = "alice"
	}
	text, _ := got.(string)
	for _, want := range []string{"user=" + user, "name=" + v.Name, fmt.Sprintf("resp=%d", v.version)} {
		if !slices.Contains(strings.Fields(text), want) {
			t.Errorf("%s: CLIENT INFO is %v, want %s", v, got, want)
		}
	}
}

// String tells sessions apart in messages.
func (v *testCase) String() string {
	return fmt.Sprintf("user %q, password %q, name %q, protocol %d", v.User, v.Password, v.Name, v.Protocol)
}

// exchange is a command and the reply to it.
type exchange struct {
	command string
	want    any
}

// exchanges are the commands of every client, under keys of its own. The policy admits 5
// at once and one every 2 s, and weir's clock stands still.
func exchanges(key string) []exchange {
	return []exchange{
		{"ECHO hello", "hello"},
		{"WEIR.CHECK api " + key, list(1, 5, 4, 0, 2000)},
		{"WEIR.CHECK api " + key + " 2", list(1, 5, 2, 0, 6000)},
		{"WEIR.PEEK api " + key + " 3", list(0, 5, 2, 2000, 6000)},
		{"WEIR.CHECK api " + key + " 6", list(0, 5, 2, -1, 6000)},
		{"WEIR.RESERVE api " + key + " 2 TTL 60000", reservation},
		{"WEIR.RENEW @ 5000", list(1, 5000)},
		{"WEIR.COMMIT @ 1", list(1, 0, 0)},
		{"WEIR.RESERVE api " + key + " 1", reservation},
		{"WEIR.CANCEL @", list(1, 0, 0)},
		{"WEIR.PEEK api " + key, list(1, 5, 1, 0, 8000)},
		{"CL.THROTTLE " + key + " 15 30 60", list(0, 16, 15, -1, 2)},
		{"CL.THROTTLE " + key + "-other 15 30 60 20", list(1, 16, 16, -1, 0)},
		{"WEIR.CHECK nothing " + key, failure(`ERR no policy is called "nothing"`)},
		{"WEIR.CHECK api", failure("ERR wrong number of arguments for 'weir.check' command")},
		{"CL.THROTTLE " + key, failure("ERR Usage: CL.THROTTLE <key> <max_burst> <count> <period> [<quantity>]")},
		{"GET " + key, failure("ERR unknown command 'GET'")},
		{"MULTI", failure("ERR unknown command 'MULTI'")},
		{"PUBLISH news hello", failure("ERR unknown command 'PUBLISH'")},
		{"EVALSHA abc 0", failure("ERR unknown command 'EVALSHA'")},
		{"CONFIG GET save", failure("ERR CONFIG is not available: the daemon is configured by its file")},
		{"CLUSTER SLOTS", failure("ERR This instance has cluster support disabled")},
		{"SELECT 1", failure("ERR DB index is out of range")},
		{"COMMAND COUNT", number},
		{"CLIENT SETINFO LIB-NAME tried", "OK"},
		{"CLIENT SETNAME renamed", "OK"},
		{"CLIENT GETNAME", "renamed"},
		{"ECHO still-here", "still-here"},
	}
}

// These stand for replies of which not all is known.
type some string

const (
	reservation some = "of a WEIR.RESERVE that was admitted"
	number      some = "a number above 0"
)

// isReply compares a reply. Clients show an error with more around it or without its code,
// and send commands in small letters that were given in capitals.
func isReply(got, want any) bool {
	switch want := want.(type) {
	case some:
		return want.is(got)
	case map[string]any:
		text := strings.TrimPrefix(errorOf(want), "ERR ")
		return strings.Contains(strings.ToLower(errorOf(got)), strings.ToLower(text))
	}
	return cmp.Equal(want, got)
}

func (s some) is(got any) bool {
	if s == number {
		n, ok := got.(float64)
		return ok && n > 0
	}
	fields, ok := got.([]any)
	if !ok || len(fields) != 6 {
		return false
	}
	id, ok := fields[0].(string)
	return ok && len(id) > 20 && fields[1] == float64(1)
}

// errorOf returns the text of an error, "" if a reply is none.
func errorOf(reply any) string {
	said, _ := reply.(map[string]any)
	text, _ := said["error"].(string)
	return text
}

// each returns a player of what plays one session.
func each(play func(*testing.T, *session) replies) player {
	return func(t *testing.T, list []*session) (all []replies) {
		t.Helper()
		for _, s := range list {
			all = append(all, play(t, s))
		}
		return all
	}
}

// probe returns a player that is a program in another language.
func probe(with, file string) player {
	return func(t *testing.T, list []*session) (all []replies) {
		t.Helper()
		in, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, interpreter(t, with), file)
		var out, errs bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &errs
		cmd.Env = environment(t)
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v\n%s%s", file, err, &out, &errs)
		}
		if err := json.Unmarshal(out.Bytes(), &all); err != nil {
			t.Fatalf("%s: %v\n%s", file, err, &out)
		}
		return all
	}
}
