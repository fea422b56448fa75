package redisconn

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir/internal/socket"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Before it asks a Cluster for its slots, rueidis sleeps for up to a second, and Close
		// does not wake it.
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}

// waitLimit is for what happens at once on a machine with nothing else to do.
const waitLimit = 20 * time.Second

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	t.Cleanup(cancel)
	return ctx
}

// open is Open for a Config that works. The Conn is closed with the test.
func open(t *testing.T, c Config) *Conn {
	t.Helper()
	conn, err := Open(testContext(t), patient(c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// patient returns a Config for a machine that is busy with other tests. Its connections are the
// daemon's, unless the test has others: those are package net's under the race detector, so that
// a run with it and one without it test both.
func patient(c Config) Config {
	if c.Dial == nil {
		c.Dial = socket.Dial
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = waitLimit
	}
	if c.Timeout == 0 {
		c.Timeout = waitLimit
	}
	return c
}

// do executes a command that works.
func do(t *testing.T, conn *Conn, key string, command ...string) string {
	t.Helper()
	text, err := try(testContext(t), conn, key, command...)
	if err != nil {
		t.Fatalf("%q: %v", command, err)
	}
	return text
}

// try executes a command whose first argument is key, and then the others.
func try(ctx context.Context, conn *Conn, key string, command ...string) (string, error) {
	cmd := conn.Client.B().Arbitrary(command[0]).Keys(key).Args(command[1:]...).Build()
	v, err := conn.Client.Do(ctx, cmd).ToAny()
	if err != nil {
		return "", err
	}
	return fmt.Sprint(v), nil
}

// await asks check again and again until it returns nil.
func await(t *testing.T, what string, check func() error) {
	t.Helper()
	end := time.Now().Add(waitLimit)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s: %v", waitLimit, what, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
