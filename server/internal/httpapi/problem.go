package httpapi

import (
	"net/http"

	"github.com/weirlimit/weir/server/internal/strictjson"
	"github.com/weirlimit/weir/weirhttp"
)

// writeProblem answers with a problem (RFC 9457). The detail says what to change.
func writeProblem(w http.ResponseWriter, status int, detail string) {
	weirhttp.Problem{Status: status, Detail: detail}.Write(w)
}

// quote is strictjson.Quote.
func quote(s string) string { return strictjson.Quote(s) }
