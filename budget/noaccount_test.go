package budget

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// A Transport without an account returns an error, and closes the body as a RoundTripper must.
func TestTransportWithoutAccount(t *testing.T) {
	body := &closing{Reader: strings.NewReader("{}")}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://rpc.invalid", body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&Transport{}).RoundTrip(r)
	if err == nil {
		resp.Body.Close()
		t.Fatal("no error")
	}
	if !strings.Contains(err.Error(), "no Account") || !body.closed {
		t.Errorf("%v, and the body was closed: %v", err, body.closed)
	}
}

// A closing body knows whether it was closed.
type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}
