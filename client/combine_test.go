package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/client"
	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
)

// gate is a daemon of which every exchange waits until it is let go.
type gate struct {
	service
	came    chan *weirv1.CheckBatchRequest
	release chan struct{}
	refuse  func(*weirv1.CheckBatchRequest) error
}

func newGate() *gate {
	g := &gate{came: make(chan *weirv1.CheckBatchRequest, 100), release: make(chan struct{}), refuse: refuseBad}
	g.checkBatch = func(ctx context.Context, r *weirv1.CheckBatchRequest) (*weirv1.CheckBatchResponse, error) {
		g.came <- r
		select {
		case <-g.release:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if err := g.refuse(r); err != nil {
			return nil, err
		}
		return admitAll(r), nil
	}
	return g
}

// refuseBad refuses a policy and a key.
func refuseBad(r *weirv1.CheckBatchRequest) error {
	switch {
	case slices.Contains(r.GetPolicy(), "none"):
		return connect.NewError(connect.CodeNotFound, errors.New("there is no policy none"))
	case slices.Contains(r.GetKey(), "bad"):
		return connect.NewError(connect.CodeInvalidArgument, errors.New("a bad key"))
	}
	return nil
}

// TestCombine: what comes during an exchange leaves together in the next, each for itself.
func TestCombine(t *testing.T) {
	g := newGate()
	c := dial(t, client.Config{Address: g.start(t), Conns: 1, Timeout: time.Minute})
	good, none := newPolicy(t, "good", weir.Limit{Rate: 1, Per: weir.Every(time.Second)}), newPolicy(t, "none", weir.Limit{Rate: 1, Per: weir.Every(time.Second)})
	var group sync.WaitGroup
	take := func(p *weir.Policy, key string, want string) {
		group.Go(func() {
			d, err := c.Take(ctx, p, key, 3)
			switch {
			case want == "" && (err != nil || !d.Allowed):
				t.Errorf("%s %s: %v, %v", p.Name(), key, d, err)
			case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, weir.ErrInvalid)):
				t.Errorf("%s %s: %v, %v, want %q", p.Name(), key, d, err, want)
			}
		})
	}
	take(good, "first", "")
	if first := <-g.came; len(first.GetKey()) != 1 || first.GetCost()[0] != 3 {
		t.Errorf("the first call did not leave alone: %v", first)
	}
	for i := range 50 {
		take(good, fmt.Sprint("good", i), "")
	}
	take(none, "k", "there is no policy none")
	take(good, "bad", "a bad key")
	c.AwaitWaiting(t, 52)
	close(g.release)
	if second := <-g.came; len(second.GetKey()) != 52 || len(second.GetPolicy()) != 2 {
		t.Errorf("%d calls under %d policies left together, want 52 under 2", len(second.GetKey()), len(second.GetPolicy()))
	}
	group.Wait()
	// The second was refused, then those under each policy, of which the 51 with a bad key were
	// halved until it was alone.
	if exchanges := len(g.came); exchanges < 2+10 || exchanges > 2+12 {
		t.Errorf("%d more exchanges, want 12 to 14", exchanges)
	}
}

// TestRefusedTogether: what is wrong with who asks, or with the one policy that all ask for, is
// returned to all at once. To try each call with a wrong token would be as many wrong tokens.
func TestRefusedTogether(t *testing.T) {
	throttled := connect.NewError(connect.CodeResourceExhausted, errors.New("too many wrong tokens"))
	throttled.Meta().Set("Retry-After", "3")
	for _, tt := range []struct {
		name     string
		err      error
		policies []string
	}{
		{"no token", connect.NewError(connect.CodeUnauthenticated, errors.New("missing client token")), []string{"p", "q"}},
		{"throttled", throttled, []string{"p", "q"}},
		{"no policy", connect.NewError(connect.CodeNotFound, errors.New("no policy")), []string{"p"}},
		{"another's policy", connect.NewError(connect.CodePermissionDenied, errors.New("may not")), []string{"p"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newGate()
			g.refuse = func(*weirv1.CheckBatchRequest) error { return tt.err }
			c := dial(t, client.Config{Address: g.start(t), Conns: 1})
			var group sync.WaitGroup
			take := func(policy string) {
				p := newPolicy(t, policy, weir.Limit{Rate: 1, Per: weir.Every(time.Second)})
				group.Go(func() {
					if _, err := c.Take(ctx, p, "k", 1); !errors.Is(err, weir.ErrInvalid) {
						t.Error(err)
					}
				})
			}
			take("p")
			<-g.came
			for i := range 20 {
				take(tt.policies[i%len(tt.policies)])
			}
			c.AwaitWaiting(t, 20)
			close(g.release)
			group.Wait()
			if exchanges := len(g.came); exchanges != 1 {
				t.Errorf("%d exchanges for what is wrong with all, want 1", exchanges)
			}
		})
	}
}

// TestGivingUp: before it leaves a call costs nothing, after that nobody knows.
func TestGivingUp(t *testing.T) {
	g := newGate()
	c := dial(t, client.Config{Address: g.start(t), Conns: 1, Timeout: time.Minute})
	p := newPolicy(t, "good", weir.Limit{Rate: 1, Per: weir.Every(time.Second)})
	take := func(key string) (context.CancelFunc, chan error) {
		own, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			_, err := c.Take(own, p, key, 1)
			ended <- err
		}()
		return cancel, ended
	}
	giveUpFirst, first := take("first")
	<-g.came
	giveUpSecond, second := take("second")
	c.AwaitWaiting(t, 1)
	_, third := take("third")
	c.AwaitWaiting(t, 2)
	giveUpSecond()
	if err := <-second; !errors.Is(err, context.Canceled) || errors.Is(err, weir.ErrUnknown) {
		t.Errorf("canceled before it left: %v", err)
	}
	giveUpFirst()
	if err := <-first; !errors.Is(err, context.Canceled) || !errors.Is(err, weir.ErrUnknown) {
		t.Errorf("canceled under way: %v", err)
	}
	g.release <- struct{}{}
	if next := <-g.came; !slices.Equal(next.GetKey(), []string{"third"}) {
		t.Errorf("%v left next", next.GetKey())
	}
	g.release <- struct{}{}
	must(t, <-third)
	over, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := c.Take(over, p, "k", 1); !errors.Is(err, context.Canceled) || errors.Is(err, weir.ErrUnknown) {
		t.Errorf("canceled before it was made: %v", err)
	}
}

// TestDeadline: an exchange lasts no longer than somebody waits for it, or than the timeout, and
// the daemon sees the cancellation. Nobody waits here until it is over.
func TestDeadline(t *testing.T) {
	const short, long = 10 * time.Second, time.Hour
	p := newPolicy(t, "good", weir.Limit{Rate: 1, Per: weir.Every(time.Second)})
	for _, tt := range []struct {
		name            string
		caller, timeout time.Duration
	}{
		{"the caller's", short, long},
		{"the client's", long, short},
	} {
		t.Run(tt.name, func(t *testing.T) {
			left := make(chan time.Duration, 1)
			var s service
			s.checkBatch = func(ctx context.Context, _ *weirv1.CheckBatchRequest) (*weirv1.CheckBatchResponse, error) {
				deadline, _ := ctx.Deadline()
				left <- time.Until(deadline)
				return nil, connect.NewError(connect.CodeDeadlineExceeded, errors.New("it took too long"))
			}
			c := dial(t, client.Config{Address: s.start(t), Timeout: tt.timeout})
			own, cancel := context.WithTimeout(ctx, tt.caller)
			defer cancel()
			if _, err := c.Take(own, p, "k", 1); !errors.Is(err, weir.ErrUnknown) || !strings.Contains(err.Error(), "deadline_exceeded") {
				t.Fatal(err)
			}
			if timeout := <-left; timeout <= 0 || timeout > short {
				t.Errorf("the daemon was given %v, want at most %v", timeout, short)
			}
		})
	}
}

// TestLost: whether something was charged is known as exactly as it can be.
func TestLost(t *testing.T) {
	p := newPolicy(t, "good", weir.Limit{Rate: 1, Per: weir.Every(time.Second)})
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a connection with something unread in it is reset
		panic(http.ErrAbortHandler)        // the answer gets lost
	}))
	defer cut.Close()
	foreign := httptest.NewServer(http.NotFoundHandler())
	defer foreign.Close()
	nobody := "unix:" + filepath.Join(t.TempDir(), "none") // a port might be somebody's by now
	for _, tt := range []struct {
		name, address, says string
		unknown             bool
	}{
		{"nobody listens", nobody, "cannot be reached", false},
		{"the answer is cut off", cut.URL, "EOF", true},
		{"somebody else", foreign.URL, "404", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := dial(t, client.Config{Address: tt.address})
			_, err := c.Take(ctx, p, "k", 1)
			if errors.Is(err, weir.ErrUnknown) != tt.unknown || !strings.Contains(fmt.Sprint(err), tt.says) {
				t.Errorf("%v, want %q, unknown %v", err, tt.says, tt.unknown)
			}
		})
	}
}

// TestClosed: a waiting call gets an error, one in flight gets its response.
func TestClosed(t *testing.T) {
	g := newGate()
	c, err := client.New(client.Config{Address: g.start(t), Conns: 1, MaxWaiting: 1, Timeout: time.Minute})
	must(t, err)
	p := newPolicy(t, "good", weir.Limit{Rate: 1, Per: weir.Every(time.Second)})
	answers := [2]chan error{make(chan error, 1), make(chan error, 1)}
	for i, answer := range answers {
		go func() {
			_, err := c.Take(ctx, p, "k", 1)
			answer <- err
		}()
		if i == 0 {
			<-g.came
		}
	}
	c.AwaitWaiting(t, 1)
	if _, err := c.Take(ctx, p, "k", 1); !errors.Is(err, weir.ErrBusy) {
		t.Errorf("too many: %v", err)
	}
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	if err := <-answers[1]; !errors.Is(err, weir.ErrUnavailable) {
		t.Errorf("waiting: %v", err)
	}
	g.release <- struct{}{}
	must(t, <-answers[0])
	must(t, <-closed)
	if _, err := c.Take(ctx, p, "k", 1); !errors.Is(err, weir.ErrUnavailable) {
		t.Errorf("after Close: %v", err)
	}
	if err := c.Do(ctx, &weir.Batch{Charges: []weir.Charge{{Policy: p, Key: "k"}}}); !errors.Is(err, weir.ErrUnavailable) {
		t.Errorf("after Close: %v", err)
	}
	must(t, c.Close())
}
