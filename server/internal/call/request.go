package call

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/compiled"
	"github.com/weirlimit/weir/ruleset"
)

// Maximum sizes of a request, in all protocols.
const (
	MaxChecks = 1000 // of a batch
	MaxKeys   = 16   // attributes
	MaxUnits  = 16

	MaxMethods = 1000 // of a batch of calls
)

// Milliseconds returns a duration.
func Milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// TTL returns how long a reservation lasts: the default if the request has none, which is 0.
func TTL(ms int64) time.Duration {
	if ms == 0 {
		return compiled.DefaultTTL
	}
	return Milliseconds(ms)
}

// FitKey returns a value as a key: one that is too long is replaced by its hash.
func FitKey(value string) string {
	if len(value) <= weir.MaxKeyBytes {
		return value
	}
	sum := sha256.Sum256([]byte(value))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Observed returns a variant under which decisions of limits that are not in a policy are recorded.
// Its own limit is a placeholder, and not used for decisions.
func Observed(name string) (*ruleset.Variant, error) {
	limit := ruleset.Limit{Limit: weir.Limit{Rate: 1, Per: weir.Every(time.Second)}}
	rules, err := ruleset.Compile([]ruleset.Policy{{Name: name, Limits: []ruleset.Limit{limit}}}, nil)
	if err != nil {
		return nil, err
	}
	return rules.All()[0].Base(), nil
}

// ReadBody fills body with that of a request, which may have at most so many bytes.
func ReadBody(w http.ResponseWriter, r *http.Request, body *bytes.Buffer, most int64) *Error {
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return Errorf(BadEncoding, "bodies are taken as they are; leave Content-Encoding out")
	}
	from := r.Body
	if r.ContentLength < 0 || r.ContentLength > most { // otherwise net/http limits the body
		from = http.MaxBytesReader(w, r.Body, most)
	}
	body.Reset()
	_, err := body.ReadFrom(from)
	if err == nil {
		return nil
	}
	switch _, tooLong := errors.AsType[*http.MaxBytesError](err); {
	case tooLong:
		return Errorf(TooLong, "a body may have %d bytes", most)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return Errorf(Slow, "the body took too long to come")
	}
	return Invalid("the body ended early")
}
