package weirhttp

import (
	"fmt"
	"net/http"
	"time"

	"github.com/weirlimit/weir"
)

// Legacy is the style of the X-RateLimit fields, which no standard describes. Styles
// differ in what Reset means, and clients cannot tell which it is, so there is none
// by default.
type Legacy uint8

// The styles.
const (
	LegacyOff    Legacy = iota // no fields
	LegacyGitHub               // Reset is a Unix time; there is also Used
	LegacyDelta                // Reset is a number of seconds
)

var legacyNames = [...]string{"off", "github", "delta"}

// String returns the name that configurations use, such as "github".
func (l Legacy) String() string {
	if int(l) < len(legacyNames) {
		return legacyNames[l]
	}
	return fmt.Sprintf("legacy(%d)", uint8(l))
}

// MarshalText returns String.
func (l Legacy) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (l *Legacy) UnmarshalText(text []byte) error {
	for i, name := range legacyNames {
		if name == string(text) {
			*l = Legacy(i)
			return nil
		}
	}
	return fmt.Errorf("weirhttp: no style of legacy headers is called %q; there are %q", text, legacyNames[:])
}

// Set sets X-RateLimit-Limit, -Remaining and -Reset, and -Used for LegacyGitHub. Now
// is when the decision was made. Reset is when the limit is as if unused, rounded
// up, and is left out if nobody knows. A client that was refused and waits until
// then is not refused again.
func (l Legacy) Set(h http.Header, d weir.Decision, now time.Time) {
	if !l.known() || !counted(d) {
		return
	}
	remaining := max(0, d.Remaining)
	var f fields
	var room [fieldsRoom]byte
	text := f.ends("X-Ratelimit-Limit", appendNumber(room[:0], d.Limit))
	text = f.ends("X-Ratelimit-Remaining", appendNumber(text, remaining))
	if l == LegacyGitHub {
		text = f.ends("X-Ratelimit-Used", appendNumber(text, d.Limit-remaining))
	}
	if reset, ok := legacyReset(d); ok {
		text = f.ends("X-Ratelimit-Reset", appendNumber(text, l.reset(reset, now)))
	}
	f.set(h, text)
}

func (l Legacy) known() bool { return l == LegacyGitHub || l == LegacyDelta }

// legacyReset returns how long until the limit is reset. A refusal may last longer,
// for one who waits in a queue.
func legacyReset(d weir.Decision) (time.Duration, bool) {
	switch {
	case d.ResetAfter == weir.Never:
		return 0, false
	case d.Allowed:
		return d.ResetAfter, true
	case d.RetryAfter == weir.Never:
		return max(1, d.ResetAfter), true
	}
	return max(1, d.ResetAfter, d.RetryAfter), true
}

// reset returns the number for a reset after so long. Seconds of the clock are
// rounded up after adding, not before: from 0.9 s, 200 ms reach into the second
// after next.
func (l Legacy) reset(after time.Duration, now time.Time) int64 {
	if l == LegacyDelta {
		return seconds64(after)
	}
	at := now.Add(after)
	if at.Nanosecond() > 0 {
		return at.Unix() + 1
	}
	return at.Unix()
}
