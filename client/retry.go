package client

import (
	"io"
	"net/http"
)

// retryTransport retries a request once if the response is a 408: a stopping daemon writes it to
// idle connections that it closes, and has not processed a request that was sent meanwhile. The
// second attempt uses another connection.
type retryTransport struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (a retryTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := a.Transport.RoundTrip(r)
	if err != nil || answer.StatusCode != http.StatusRequestTimeout || r.GetBody == nil {
		return answer, err
	}
	_, _ = io.CopyN(io.Discard, answer.Body, maxShutdownReply) // the body is short
	_ = answer.Body.Close()
	next := r.Clone(r.Context())
	if next.Body, err = r.GetBody(); err != nil {
		return nil, err
	}
	return a.Transport.RoundTrip(next)
}

const maxShutdownReply = 1 << 10
