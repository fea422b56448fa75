package tracing

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

const (
	firstWait = time.Second // before a batch is sent again; it doubles with each try
	maxWait   = 8 * time.Second
	maxAnswer = 64 << 10 // bytes of an answer that are read
)

// uploader posts spans for the SDK's exporter. The SDK's own client is not used: it links gzip into each
// gRPC server of the process, so that small messages could become large.
type uploader struct {
	client *http.Client
	url    string
	header http.Header // of each request
	zip    bool

	// stopping is canceled when nothing is tried again.
	stopping context.Context
}

var _ otlptrace.Client = (*uploader)(nil)

// uploadError says, without secrets, why spans were not taken.
type uploadError struct {
	reason string
	lost   int           // how many spans, 0 for all
	again  bool          // the batch may be sent again
	after  time.Duration // not before that
}

// Error returns the reason.
func (e *uploadError) Error() string { return e.reason }

// Start does nothing.
func (u *uploader) Start(context.Context) error { return nil }

// Stop does nothing: requests end with their contexts.
func (u *uploader) Stop(context.Context) error { return nil }

// UploadTraces sends a batch until it is taken, cannot be, or ctx ends.
func (u *uploader) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	body, err := u.encode(spans)
	if err != nil {
		return err
	}
	for wait := firstWait; ; wait = min(2*wait, maxWait) {
		failure := u.post(ctx, body)
		switch {
		case failure == nil:
			return nil
		case !failure.again || !u.sleep(ctx, max(failure.after, wait/2+rand.N(wait/2))):
			return failure
		}
	}
}

// encode returns the body of a request. TracesData is ExportTraceServiceRequest by another name.
func (u *uploader) encode(spans []*tracepb.ResourceSpans) ([]byte, error) {
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil || !u.zip {
		return body, err
	}
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, err = w.Write(body)
	err = errors.Join(err, w.Close())
	return zipped.Bytes(), err
}

// sleep waits, and reports whether it could.
func (u *uploader) sleep(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil || u.stopping.Err() != nil {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-u.stopping.Done():
	case <-ctx.Done():
	}
	return false
}

// post sends a body once.
func (u *uploader) post(ctx context.Context, body []byte) *uploadError {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, u.url, bytes.NewReader(body))
	if err != nil {
		return &uploadError{reason: withoutURL(err).Error()}
	}
	request.Header = u.header.Clone()
	response, err := u.client.Do(request)
	if err != nil {
		return &uploadError{reason: withoutURL(err).Error(), again: ctx.Err() == nil}
	}
	defer response.Body.Close() //nolint:errcheck // nothing depends on it
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if response.StatusCode/100 != 2 {
		return &uploadError{
			reason: fmt.Sprintf("the collector answered %d %s", response.StatusCode, http.StatusText(response.StatusCode)),
			again:  isTemporary(response.StatusCode), after: retryAfter(response.Header, time.Now()),
		}
	}
	if n := rejected(answer); err == nil && n > 0 { // if it could not be read, the status has come all the same
		return &uploadError{reason: "the collector rejected some of a batch", lost: n}
	}
	return nil
}

// isTemporary reports whether a batch with such an answer is to be sent again.
func isTemporary(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// retryAfter reads the header, in seconds or as a date. It is 0 if there is none that makes sense.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// rejected returns partial_success.rejected_spans of an ExportTraceServiceResponse, each of which is the
// first field of its message. An answer that is something else rejects nothing.
func rejected(answer []byte) int {
	number, kind, n := protowire.ConsumeTag(answer)
	if n < 0 || number != 1 || kind != protowire.BytesType {
		return 0
	}
	partial, n := protowire.ConsumeBytes(answer[n:])
	if n < 0 {
		return 0
	}
	number, kind, n = protowire.ConsumeTag(partial)
	if n < 0 || number != 1 || kind != protowire.VarintType {
		return 0
	}
	count, n := protowire.ConsumeVarint(partial[n:])
	if n < 0 {
		return 0
	}
	return int(min(count, 1<<16)) //nolint:gosec // a batch has no more
}

// withoutURL returns the cause of an error of net/http.
func withoutURL(err error) error {
	for {
		withURL, ok := errors.AsType[*url.Error](err)
		if !ok {
			return err
		}
		err = withURL.Err
	}
}
