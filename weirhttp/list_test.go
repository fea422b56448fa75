package weirhttp

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// listChecker reads a List of Strings with parameters as RFC 9651 has it, and no
// more than these fields use. It stops at the first byte that is wrong.
type listChecker struct {
	text string
	at   int
}

// checkList returns an error unless text is such a list, with a member at least.
func checkList(text string) error {
	c := &listChecker{text: text}
	for {
		if err := c.member(); err != nil {
			return fmt.Errorf("%q, byte %d: %w", text, c.at, err)
		}
		if c.at == len(text) {
			return nil
		}
		if !c.eat(", ") {
			return fmt.Errorf("%q, byte %d: want a comma and a space", text, c.at)
		}
	}
}

func (c *listChecker) member() error {
	if err := c.str(); err != nil {
		return err
	}
	seen := map[string]bool{}
	for c.eat(";") {
		key := c.while(func(b byte) bool { return b >= 'a' && b <= 'z' })
		if key == "" || seen[key] || !c.eat("=") {
			return fmt.Errorf("parameter %q is nothing, twice or without a value", key)
		}
		seen[key] = true
		if err := c.value(key); err != nil {
			return err
		}
	}
	if !seen["q"] && !seen["r"] {
		return fmt.Errorf("neither q nor r")
	}
	return nil
}

func (c *listChecker) value(key string) error {
	if key == "qu" {
		return c.str()
	}
	digits := c.while(func(b byte) bool { return b >= '0' && b <= '9' })
	if len(digits) < 1 || len(digits) > 15 || len(digits) > 1 && digits[0] == '0' {
		return fmt.Errorf("%s is the number %q", key, digits)
	}
	if digits == "0" && (key == "w" || key == "t") {
		return fmt.Errorf("%s is 0", key)
	}
	return nil
}

func (c *listChecker) str() error {
	if !c.eat(`"`) {
		return fmt.Errorf("want a quote")
	}
	for {
		c.while(func(b byte) bool { return b >= ' ' && b <= '~' && b != '"' && b != '\\' })
		switch {
		case c.eat(`"`):
			return nil
		case !c.eat(`\"`) && !c.eat(`\\`):
			return fmt.Errorf("not a character of a String")
		}
	}
}

func (c *listChecker) eat(prefix string) bool {
	if !strings.HasPrefix(c.text[c.at:], prefix) {
		return false
	}
	c.at += len(prefix)
	return true
}

func (c *listChecker) while(ok func(byte) bool) string {
	from := c.at
	for c.at < len(c.text) && ok(c.text[c.at]) {
		c.at++
	}
	return c.text[from:c.at]
}

func TestListCheckerIsStrict(t *testing.T) {
	for _, good := range []string{`"a";q=1`, `"";r=0;t=1`, `"a\"\\";q=1;w=1;qu="x", "b";r=999999999999999`} {
		if err := checkList(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{
		``, `a;q=1`, `"a"`, `"a;q=1`, `"a\b";q=1`, "\"a\n\";q=1", `"ü";q=1`, `"a";q=`, `"a";q=-1`, `"a";q=01`,
		`"a";q=1000000000000000`, `"a";q=1,"b";q=1`, `"a";q=1, `, `"a";q=1;q=2`, `"a";q=1;w=0`, `"a";r=1;t=0`, `"a";q=1 `, `"a";qu=x;q=1`,
	} {
		if checkList(bad) == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// FuzzHeaders sets the fields of any decision under any name: they are always lists
// as the RFC has them, and no byte of any field can end it.
func FuzzHeaders(f *testing.F) {
	f.Add("api.daily", "", uint8(0), int64(100), int64(1e9), int64(0), true, uint8(0), int64(100), int64(42), int64(0), int64(1e9))
	f.Add("a\r\nSet-Cookie: b", "\x00\"\\", uint8(1), int64(1), int64(1), int64(1<<62), false, uint8(1), int64(1), int64(-5), int64(-1), int64(-1))
	f.Add("ü", "tokens", uint8(8), int64(-1), int64(-1), int64(-1), false, uint8(2), int64(1<<62), int64(1<<62), int64(1<<62), int64(1<<62))
	f.Fuzz(func(t *testing.T, name, unit string, algorithm uint8, rate, per, burst int64, allowed bool, reason uint8, limit, remaining, retry, reset int64) {
		l := weir.Limit{Rate: rate, Per: weir.Every(time.Duration(per)), Burst: burst, Algorithm: weir.Algorithm(algorithm)}
		d := weir.Decision{
			Allowed: allowed, Reason: weir.Reason(reason), Limit: limit, Remaining: remaining,
			RetryAfter: time.Duration(retry), ResetAfter: time.Duration(reset),
		}
		h := http.Header{}
		SetHeaders(h, NewQuotas(NewQuota(name, l, unit), NewQuota("other", l, "")), 0, d)
		LegacyGitHub.Set(h, d, time.Unix(1_800_000_000, 1))
		for name, values := range h {
			checkField(t, name, values)
		}
		if (limit > 0) != (h.Get("RateLimit") != "") {
			t.Errorf("limit %d, RateLimit %q", limit, h.Get("RateLimit"))
		}
	})
}

func checkField(t *testing.T, name string, values []string) {
	t.Helper()
	if http.CanonicalHeaderKey(name) != name || len(values) != 1 {
		t.Errorf("%s: %q is not how fields are stored", name, values)
	}
	for _, b := range []byte(values[0]) {
		if b < ' ' || b > '~' {
			t.Errorf("%s: %q has a byte that is not to be in a field", name, values)
		}
	}
	if name != fieldPolicy && name != fieldRateLimit {
		if !isDigits(values[0]) || len(values[0]) > 15 {
			t.Errorf("%s: %q is no number", name, values)
		}
		return
	}
	if err := checkList(values[0]); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}
