package otlp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const (
	maxTries  = 5
	firstWait = time.Second // doubles with each try
	maxWait   = 30 * time.Second
	maxAnswer = 64 << 10 // bytes of an answer that are read
)

// answer is what came back for a batch.
type answer struct {
	status   int
	rejected int64         // spans that were not taken
	wait     time.Duration // what Retry-After says, or less than 0
}

// send posts body until it is taken or trying again is of no use. It returns how many
// spans the collector rejected.
func (e *Exporter) send(ctx, work context.Context, body []byte) (rejected int64, err error) {
	for try := 1; ; try++ {
		a, err := e.post(work, body)
		switch {
		case err != nil:
			return 0, err
		case a.status/100 == 2:
			return a.rejected, nil
		case !again(a.status):
			return 0, fmt.Errorf("status %d", a.status)
		case try == maxTries:
			return 0, fmt.Errorf("status %d, %d times", a.status, try)
		}
		wait := a.wait
		if wait < 0 {
			wait = backoff(try)
		}
		if wait > maxWait {
			return 0, fmt.Errorf("status %d, come back in %v", a.status, wait)
		}
		if !sleep(ctx, wait) {
			return 0, fmt.Errorf("status %d, and no time to try again", a.status)
		}
		e.retries.Add(1)
	}
}

// again says whether a batch with such an answer is to be sent again.
func again(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// backoff is how long to wait after a try, the first being 1: up to 1 s, 2 s, 4 s, and no
// less than half of it.
func backoff(try int) time.Duration {
	most := firstWait << (try - 1)
	return most/2 + rand.N(most/2+1)
}

// sleep waits, and says whether it could before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil { // also if there is nothing to wait for
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// post sends body once. Its errors do not tell the URL.
func (e *Exporter) post(ctx context.Context, body []byte) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return answer{}, scrub(err)
	}
	req.Header = e.header.Clone()
	resp, err := e.client.Do(req)
	if err != nil {
		return answer{}, scrub(err)
	}
	defer resp.Body.Close() //nolint:errcheck // nothing depends on it
	a := answer{status: resp.StatusCode, wait: retryAfter(resp.Header, time.Now())}
	// Reading to the end lets the connection be used again. If that fails, the status
	// has come all the same.
	if text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)); err == nil {
		a.rejected = rejectedIn(text)
	}
	return a, nil
}

// scrub takes the URL out of an error of net/http.
func scrub(err error) error {
	var withURL *url.Error
	if errors.As(err, &withURL) {
		return withURL.Err
	}
	return err
}

// rejectedIn reads how many spans an answer says were rejected. 64-bit numbers may come as
// texts. An answer that is something else rejects nothing.
func rejectedIn(text []byte) int64 {
	var a struct {
		PartialSuccess struct {
			RejectedSpans json.Number `json:"rejectedSpans"`
		} `json:"partialSuccess"`
	}
	if json.Unmarshal(text, &a) != nil {
		return 0
	}
	n, err := a.PartialSuccess.RejectedSpans.Int64()
	if err != nil {
		return 0
	}
	return n
}

// retryAfter reads the header, in seconds or as a date. It returns less than 0 if there is
// none that makes sense.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(now))
	}
	return -1
}
