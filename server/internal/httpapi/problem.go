package httpapi

import (
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/weirlimit/weir/weirhttp"
)

// writeProblem answers with a problem (RFC 9457). The detail says what to change.
func writeProblem(w http.ResponseWriter, status int, detail string) {
	weirhttp.Problem{Status: status, Detail: detail}.Write(w)
}

// quote returns a caller's text in a form that is safe to show: quoted, control characters escaped,
// cut to maxQuoted bytes.
func quote(s string) string {
	if len(s) <= maxQuoted {
		return strconv.QuoteToASCII(s)
	}
	cut := maxQuoted
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.QuoteToASCII(s[:cut]) + "…"
}

const maxQuoted = 64
