package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// caller calls a method of the provider.
type caller interface {
	call(ctx context.Context, method string, params any) (json.RawMessage, error)
}

// client is a caller that counts. It repeats calls that the provider refuses with 429.
type client struct {
	http           *http.Client
	url            string
	calls, refused atomic.Int64
	waited         atomic.Int64 // calls that waited for the budget
}

// delays returns how many times calls have been refused or had to wait.
func (c *client) delays() int64 { return c.refused.Load() + c.waited.Load() }

func (c *client) call(ctx context.Context, method string, params any) (json.RawMessage, error) {
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": c.calls.Add(1), "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	for {
		a, retry, err := c.send(ctx, body)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", method, err)
		case retry > 0:
			c.refused.Add(1)
			pause(ctx, retry)
		case a.Error != nil:
			return nil, fmt.Errorf("%s: error %d: %s", method, a.Error.Code, a.Error.Message)
		default:
			return a.Result, nil
		}
	}
}

// send sends a call once. If the provider refuses it, retry is positive.
func (c *client) send(ctx context.Context, body []byte) (a answer, retry time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return a, 0, err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return a, 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusTooManyRequests {
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		retry = time.Duration(max(1, seconds)) * time.Second
	}
	err = json.NewDecoder(resp.Body).Decode(&a)
	return a, retry, err
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
