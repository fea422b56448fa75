package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// caller calls a method of the provider.
type caller interface {
	call(ctx context.Context, method string, params any) (json.RawMessage, error)
}

// client is a caller that counts. Its http.Client has a budget.Transport, which charges each request and lets
// it wait until there is room for it.
type client struct {
	http           *http.Client
	url            string
	calls, refused atomic.Int64
	waited         atomic.Int64 // calls that waited for the budget
	longest        atomic.Int64 // of these waits, in ns
}

// noticeable is how long a call waits at least to count as one that waited. Asking Redis takes less.
const noticeable = 20 * time.Millisecond

// delays returns how many times calls have been refused or had to wait.
func (c *client) delays() int64 { return c.refused.Load() + c.waited.Load() }

// errTooMany is the error of a call that the provider has refused.
var errTooMany = errors.New("the provider has refused a call as one too many")

// call repeats a call that the provider refuses. The transport then waits for as long as the provider says.
func (c *client) call(ctx context.Context, method string, params any) (json.RawMessage, error) {
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": c.calls.Add(1), "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	a, err := c.send(ctx, body)
	for errors.Is(err, errTooMany) {
		c.refused.Add(1)
		a, err = c.send(ctx, body)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", method, err)
	case a.Error != nil:
		return nil, fmt.Errorf("%s: error %d: %s", method, a.Error.Code, a.Error.Message)
	}
	return a.Result, nil
}

// send makes a call once.
func (c *client) send(ctx context.Context, body []byte) (a answer, err error) {
	began := time.Now()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GetConn: func(string) { c.sending(time.Since(began)) }})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusTooManyRequests {
		return a, errTooMany
	}
	return a, json.NewDecoder(resp.Body).Decode(&a)
}

// sending counts a call that has waited so long before it is sent.
func (c *client) sending(waited time.Duration) {
	if waited < noticeable {
		return
	}
	c.waited.Add(1)
	for most := c.longest.Load(); int64(waited) > most && !c.longest.CompareAndSwap(most, int64(waited)); most = c.longest.Load() {
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
