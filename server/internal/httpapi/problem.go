package httpapi

import (
	"encoding/json"
	"net/http"
	"strconv"
	"unicode/utf8"
)

// problem is the body of every answer that is not a decision (RFC 9457). Its
// type is about:blank: the status says what kind of problem it is, the detail
// says what to change.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

func writeProblem(w http.ResponseWriter, status int, detail string) {
	body, err := json.Marshal(problem{"about:blank", http.StatusText(status), status, detail})
	if err != nil { // strings and a number always marshal
		panic(err)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	w.Write(append(body, '\n')) // an error means that the caller is gone
}

// quote returns what a caller sent in a form that is safe to show: quoted,
// control characters escaped, cut to maxQuoted bytes.
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
