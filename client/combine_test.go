package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
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
}

func newGate() *gate {
	g := &gate{came: make(chan *weirv1.CheckBatchRequest, 100), release: make(chan struct{})}
	g.checkBatch = func(ctx context.Context, r *weirv1.CheckBatchRequest) (*weirv1.CheckBatchResponse, error) {
		g.came <- r
		select {
		case <-g.release:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if slices.Contains(r.GetPolicy(), "none") {
			return nil, connect.NewError(connect.CodeNotFound, errors.New("there is no policy none"))
		}
		if slices.Contains(r.GetKey(), "bad") {
			return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("a bad key"))
		}
		return admitAll(r), nil
	}
	return g
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
			case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, weir.ErrUnfit)):
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
	// The second was refused, then those under each policy, of which the one with a bad key was
	// sent one by one.
	if exchanges := len(g.came); exchanges != 2+51 {
		t.Errorf("%d more exchanges, want 53", exchanges)
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
		t.Errorf("given up before it left: %v", err)
	}
	giveUpFirst()
	if err := <-first; !errors.Is(err, context.Canceled) || !errors.Is(err, weir.ErrUnknown) {
		t.Errorf("given up under way: %v", err)
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
		t.Errorf("given up before it was made: %v", err)
	}
}

// TestDeadline: an exchange lasts no longer than somebody waits for it, or than the timeout.
func TestDeadline(t *testing.T) {
	p := newPolicy(t, "good", weir.Limit{Rate: 1, Per: weir.Every(time.Second)})
	for _, tt := range []struct {
		name            string
		caller, timeout time.Duration
	}{
		{"the caller's", 30 * time.Millisecond, time.Minute},
		{"the client's", time.Minute, 30 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			left := make(chan time.Duration, 1)
			var s service
			s.checkBatch = func(ctx context.Context, _ *weirv1.CheckBatchRequest) (*weirv1.CheckBatchResponse, error) {
				deadline, _ := ctx.Deadline()
				left <- time.Until(deadline)
				<-ctx.Done()
				return nil, ctx.Err()
			}
			c := dial(t, client.Config{Address: s.start(t), Timeout: tt.timeout})
			own, cancel := context.WithTimeout(ctx, tt.caller)
			defer cancel()
			_, err := c.Take(own, p, "k", 1)
			if !errors.Is(err, weir.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "deadline_exceeded") {
				t.Errorf("%v", err)
			}
			if told := <-left; told > 30*time.Millisecond {
				t.Errorf("the daemon was given %v, want at most 30ms", told)
			}
		})
	}
}

// TestLost: whether something was charged is known as exactly as it can be.
func TestLost(t *testing.T) {
	p := newPolicy(t, "good", weir.Limit{Rate: 1, Per: weir.Every(time.Second)})
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		panic(http.ErrAbortHandler) // the answer gets lost
	}))
	defer cut.Close()
	foreign := httptest.NewServer(http.NotFoundHandler())
	defer foreign.Close()
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, nobody.Close())
	for _, tt := range []struct {
		name, address, says string
		unknown             bool
	}{
		{"nobody listens", nobody.Addr().String(), "cannot be reached", false},
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

// TestClosed: who waits is told, who is under way gets the answer.
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
	if _, err := c.Take(ctx, p, "k", 1); !errors.Is(err, client.ErrBusy) {
		t.Errorf("too many: %v", err)
	}
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	if err := <-answers[1]; !errors.Is(err, client.ErrClosed) {
		t.Errorf("waiting: %v", err)
	}
	g.release <- struct{}{}
	must(t, <-answers[0])
	must(t, <-closed)
	if _, err := c.Take(ctx, p, "k", 1); !errors.Is(err, client.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := c.Do(ctx, &weir.Batch{Charges: []weir.Charge{{Policy: p, Key: "k"}}}); !errors.Is(err, client.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	must(t, c.Close())
}
