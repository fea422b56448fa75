package client

import (
	"io"
	"net/http"
)

// again sends a request once more that a daemon has told us it did not take: one that stops
// answers 408 on connections that it closes, and what crosses that was not carried out. The
// second time it goes over another connection, to whoever listens by then.
type again struct{ *http.Transport }

// RoundTrip is http.RoundTripper's.
func (a again) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := a.Transport.RoundTrip(r)
	if err != nil || answer.StatusCode != http.StatusRequestTimeout || r.GetBody == nil {
		return answer, err
	}
	_, _ = io.CopyN(io.Discard, answer.Body, maxFarewell) // it is a sentence
	_ = answer.Body.Close()
	next := r.Clone(r.Context())
	if next.Body, err = r.GetBody(); err != nil {
		return nil, err
	}
	return a.Transport.RoundTrip(next)
}

const maxFarewell = 1 << 10
