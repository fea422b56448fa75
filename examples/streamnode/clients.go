package main

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/weirlimit/weir/guard"
)

// client is a user of the node, who counts what happens to the calls.
type client struct {
	name string
	identity
	ip   string // as the load balancer reports it
	http *http.Client
	url  string

	mu      sync.Mutex // guards the fields below
	results map[string]*result
	refusal *connect.Error // the last
}

// result counts the calls of an endpoint.
type result struct{ ok, refused, failed int }

// call calls an endpoint and returns the error, if there is one. The end of ctx does not interrupt it.
func (c *client) call(ctx context.Context, name string, fields map[string]any) error {
	client := connect.NewClient[message, message](c.http, c.url+pathOf(name))
	_, err := client.CallUnary(context.WithoutCancel(ctx), c.request(fields))
	return c.count(name, err)
}

func (c *client) request(fields map[string]any) *connect.Request[message] {
	r := connect.NewRequest(object(fields))
	r.Header().Set("Authorization", "Bearer "+c.token())
	r.Header().Set("X-Forwarded-For", c.ip)
	return r
}

// subscribe opens a subscription of a stream. It lasts until ctx ends.
func (c *client) subscribe(ctx context.Context) (id string, err error) {
	client := connect.NewClient[message, message](c.http, c.url+pathOf("SyncStreams"))
	stream, err := client.CallServerStream(ctx, c.request(map[string]any{"add": []any{"lobby"}}))
	if err == nil && !stream.Receive() {
		err = cmp.Or(stream.Err(), errors.New("the stream has ended"))
	}
	if err := c.count("SyncStreams", err); err != nil {
		return "", err
	}
	return text(stream.Msg(), "sync"), nil
}

func (c *client) count(name string, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.results[name] == nil {
		c.results[name] = &result{}
	}
	switch refusal, ok := errors.AsType[*connect.Error](err); {
	case err == nil:
		c.results[name].ok++
	case ok && refusal.Code() == connect.CodeResourceExhausted:
		c.results[name].refused++
		c.refusal = refusal
	default:
		c.results[name].failed++
	}
	return err
}

// normal sends a message per second and reads, until ctx ends.
func (c *client) normal(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		_ = c.call(ctx, "GetStream", nil)
		_ = c.call(ctx, "GetLastMiniblockHash", nil)
		if i%2 == 0 {
			_ = c.call(ctx, "AddEvent", c.event("hello"))
		}
		pause(ctx, 500*time.Millisecond)
	}
}

// appStart makes the calls of an app that starts: 57 reads with limits and 6 without, all at once.
func (c *client) appStart(ctx context.Context) {
	var all sync.WaitGroup
	for name, n := range map[string]int{
		"GetStream": 30, "GetStreamEx": 5, "GetMiniblocks": 10, "GetLastMiniblockHash": 12, "GetAppMetadata": 5, "GetStatus": 1,
	} {
		for range n {
			all.Go(func() { _ = c.call(ctx, name, nil) })
		}
	}
	all.Wait()
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	if id, err := c.subscribe(ctx); err == nil {
		_ = c.call(ctx, "AddStreamToSync", map[string]any{"sync": id, "add": []any{"games", "music"}})
		_ = c.call(ctx, "ModifySync", map[string]any{"sync": id, "add": []any{"news"}, "remove": []any{"games"}})
		_ = c.call(ctx, "RemoveStreamFromSync", map[string]any{"sync": id, "remove": []any{"music"}})
	}
}

// archive is an internal service that reads more miniblocks than a user may: it is exempt.
func (c *client) archive(ctx context.Context) {
	for range 50 {
		_ = c.call(ctx, "GetMiniblocks", nil)
	}
}

// collect opens 11 subscriptions, closes the first, and opens another as soon as the node has noticed.
func (c *client) collect(ctx context.Context) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	first, closeFirst := context.WithCancel(ctx)
	_, _ = c.subscribe(first)
	for range 10 {
		_, _ = c.subscribe(ctx)
	}
	closeFirst()
	for ctx.Err() == nil {
		pause(ctx, 20*time.Millisecond)
		if _, err := c.subscribe(ctx); err == nil {
			return
		}
	}
}

// hammer sends as much as it can, with events that it claims are of a victim, until it was penalised
// and the penalty is over. Then it waits for a second and sends one event of its own. It returns
// whether that was admitted.
func (c *client) hammer(ctx context.Context, g *guard.Guard, victim identity) (released bool) {
	forged := c.event("spam")
	forged["creator"] = victim.address()
	penalized := func() bool {
		until, err := g.Penalty(context.WithoutCancel(ctx), "user:"+c.address())
		return err == nil && !until.IsZero()
	}
	for _, phase := range []bool{false, true} {
		for penalized() == phase && ctx.Err() == nil {
			for range 10 {
				_ = c.call(ctx, "Register", nil)
				_ = c.call(ctx, "CreateStream", nil)
				_ = c.call(ctx, "AddEvent", forged)
			}
			pause(ctx, 250*time.Millisecond)
		}
	}
	pause(ctx, time.Second)
	return !penalized() && c.call(ctx, "AddEvent", c.event("sorry")) == nil
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
