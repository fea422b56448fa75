package rig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The only policy of a daemon without a configuration.
const (
	Policy = "default"
	Rate   = 100 // units per second
	Burst  = 100
)

// requestLimit is how long the client waits: much longer than any daemon may take, so
// that one that hangs is seen as such.
const requestLimit = 5 * time.Second

// idleTimeout is how long the client keeps a connection that is not used. It must be
// less than a daemon waits for the first request on it, or the daemon may close it just
// when a call is in flight.
const idleTimeout = 2 * time.Second

// Fleet is several daemons, and a client of theirs.
type Fleet struct {
	Daemons []*Daemon

	t      testing.TB
	client *http.Client
	fresh  atomic.Int64 // keys that FreshKey gave out
}

// StartFleet starts n daemons.
func StartFleet(t testing.TB, program string, n int, args ...string) *Fleet {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 512, IdleConnTimeout: idleTimeout}
	t.Cleanup(transport.CloseIdleConnections)
	f := &Fleet{t: t, client: &http.Client{Transport: transport, Timeout: requestLimit}}
	for range n {
		f.Daemons = append(f.Daemons, startDaemon(t, program, args...))
	}
	return f
}

// Check is a call to a daemon.
type Check struct {
	Policy string `json:"policy"`
	Key    string `json:"key"`
	Cost   *int64 `json:"cost,omitempty"`
	Peek   bool   `json:"peek,omitempty"`
}

// Answer is what a daemon said.
type Answer struct {
	Status    int    `json:"-"`
	Allowed   bool   `json:"allowed"`
	Limit     int64  `json:"limit"`
	Remaining int64  `json:"remaining"`
	Reason    string `json:"reason"`
	Detail    string `json:"detail"` // of a problem
}

// Ask calls a daemon to take cost units. An answer of any status is no error.
func (f *Fleet) Ask(node int, key string, cost int64) (Answer, error) {
	return f.AskFor(node, Policy, key, cost)
}

// AskFor is Ask for another policy than the daemons have without a configuration.
func (f *Fleet) AskFor(node int, policy, key string, cost int64) (Answer, error) {
	body, err := json.Marshal(Check{Policy: policy, Key: key, Cost: &cost})
	if err != nil {
		return Answer{}, err
	}
	return f.post(node, body)
}

// Peek returns how many units are left, and takes none.
func (f *Fleet) Peek(node int, key string) (Answer, error) {
	one := int64(1)
	body, err := json.Marshal(Check{Policy: Policy, Key: key, Cost: &one, Peek: true})
	if err != nil {
		return Answer{}, err
	}
	return f.post(node, body)
}

func (f *Fleet) post(node int, body []byte) (answer Answer, err error) {
	resp, err := f.client.Post(f.Daemons[node].url+"/v1/check", "application/json", bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body) // to its end, so that the connection is used again
	if err != nil {
		return Answer{}, err
	}
	answer.Status = resp.StatusCode
	return answer, json.Unmarshal(text, &answer)
}

// FreshKey returns a key that was not used before.
func (f *Fleet) FreshKey() string { return "fresh" + strconv.FormatInt(f.fresh.Add(1), 10) }

// AwaitShared waits until each of the daemons (all if none is named) refuses what
// another one has taken, and returns how long that took. It fails the test if that is
// not so within limit.
//
// A daemon takes the whole burst of a fresh key, which it can do only with the store:
// its own share is smaller. The next one must then find the key exhausted, as it is for
// a second; without the store it would say that the store is down.
func (f *Fleet) AwaitShared(limit time.Duration, nodes ...int) time.Duration {
	f.t.Helper()
	if len(nodes) == 0 {
		for i := range f.Daemons {
			nodes = append(nodes, i)
		}
	}
	begin := time.Now()
	for i, node := range nodes {
		next := nodes[(i+1)%len(nodes)]
		what := fmt.Sprintf("daemon %d to see what daemon %d takes", next, node)
		Await(f.t, what, limit-time.Since(begin), func() error { return f.shared(node, next) })
	}
	return time.Since(begin)
}

var errSlow = errors.New("the machine is too slow to tell")

func (f *Fleet) shared(node, next int) error {
	key, begin := f.FreshKey(), time.Now()
	took, err := f.Ask(node, key, Burst)
	if err != nil || !took.Allowed {
		return fmt.Errorf("daemon %d: %+v, %v, want the whole burst", node, took, err)
	}
	refused, err := f.Ask(next, key, Burst)
	switch {
	case err != nil:
		return err
	case time.Since(begin) > time.Second*Burst/Rate:
		return errSlow
	case refused.Status != http.StatusOK || refused.Allowed || refused.Reason != "exhausted":
		return fmt.Errorf("daemon %d: %+v, want a refusal of a key that is exhausted", next, refused)
	}
	return nil
}

// AwaitUnavailable waits until each daemon has an open breaker, and returns when the last of
// them opened. Since is when the fault began; on a busy machine breakers may have opened
// before.
func (f *Fleet) AwaitUnavailable(since time.Time, limit time.Duration) time.Time {
	f.t.Helper()
	return f.awaitStore(true, since, limit)
}

// AwaitAvailable waits until each daemon has no open breaker, at since or later, and returns
// when the last breaker closed, which may be before since.
func (f *Fleet) AwaitAvailable(since time.Time, limit time.Duration) time.Time {
	f.t.Helper()
	return f.awaitStore(false, since, limit)
}

func (f *Fleet) awaitStore(unavailable bool, since time.Time, limit time.Duration) (last time.Time) {
	f.t.Helper()
	for _, d := range f.Daemons {
		if d.isKilled() {
			continue
		}
		if at := d.awaitStore(unavailable, since, limit); at.After(last) {
			last = at
		}
	}
	return last
}

func (d *Daemon) isKilled() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.killed
}

// Calm lets the daemons close connections of clients that are idle, so that Usage counts
// those to the store. There must be no load.
func (f *Fleet) Calm() {
	f.t.Helper()
	f.client.CloseIdleConnections()
	last, since := f.Usage().FDs, time.Now()
	Await(f.t, "open files to become fewer", calmLimit, func() error {
		if now := f.Usage().FDs; now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) < calmFor {
			return fmt.Errorf("there are %d", last)
		}
		return nil
	})
}

const (
	calmLimit = 10 * time.Second
	calmFor   = 300 * time.Millisecond // the count does not change
)

// Usage returns the greatest of each figure among the daemons that run.
func (f *Fleet) Usage() (most Usage) {
	f.t.Helper()
	for _, d := range f.Daemons {
		if d.isKilled() {
			continue
		}
		u := d.Usage()
		most = Usage{max(most.RSS, u.RSS), max(most.Threads, u.Threads), max(most.FDs, u.FDs), max(most.CPU, u.CPU)}
	}
	return most
}

// Stop ends all daemons that run, and returns the sum of what they said of their work.
// Nodes is the greatest.
func (f *Fleet) Stop() (sum Tier) {
	f.t.Helper()
	f.client.CloseIdleConnections() // a daemon waits for a connection that was never used
	tiers := make([]Tier, len(f.Daemons))
	var wg sync.WaitGroup
	for i, d := range f.Daemons {
		if !d.isKilled() {
			wg.Go(func() { tiers[i] = d.Stop() })
		}
	}
	wg.Wait()
	for _, t := range tiers {
		sum.add(t)
	}
	return sum
}

func (t *Tier) add(other Tier) {
	t.Decisions.DenyCache += other.Decisions.DenyCache
	t.Decisions.Lease += other.Decisions.Lease
	t.Decisions.Store += other.Decisions.Store
	t.Decisions.Async += other.Decisions.Async
	t.Decisions.Fallback += other.Decisions.Fallback
	t.StoreCalls += other.StoreCalls
	t.Unknown += other.Unknown
	t.Forfeited += other.Forfeited
	t.Lost += other.Lost
	t.Forgiven += other.Forgiven
	t.Nodes = max(t.Nodes, other.Nodes)
}
