package adminapi

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/golden"
)

// Every change leaves a line, whatever became of it. Looking leaves none.
func TestAudit(t *testing.T) {
	frozen(t, func(t *testing.T) {
		d := newDaemon(t).guarded()
		close(d.records)
		for _, call := range calls {
			d.send(call.what, bearer(readToken)...)
			d.send(call.what, bearer(writeToken)...)
		}
		for _, what := range []string{
			`PUT /admin/v1/keys/override {"policy":"api","key":"evil\r\nlevel=INFO msg=audit","limits":[{"rate":0,"per":"1s"}],"ttl_s":60}`,
			`POST /admin/v1/keys/reset {"policy":"` + strings.Repeat("p", 100) + `","key":"\u001b[31m"}`,
			`POST /admin/v1/keys/reset {"policy":"api","key":1}`,
			`POST /admin/v1/keys/reset nonsense`,
			"DELETE /admin/v1/keys/override?policy=api&key=%00%0a",
		} {
			d.send(what, bearer(writeToken)...)
		}
		golden.Check(t, "testdata/audit.golden", []byte(d.log.String()))
	})
}

// Without tokens, operators are anonymous.
func TestAuditOfAnonymous(t *testing.T) {
	d := newDaemon(t)
	d.send(`POST /admin/v1/keys/reset {"policy":"slots","key":"alice"}`)
	const want = "level=INFO msg=audit operator=anonymous remote=192.0.2.1:1234 action=reset policy=slots key=alice outcome=done status=200\n"
	if got := d.log.String(); got != want {
		t.Errorf("log = %q, want %q", got, want)
	}
}

// Tokens appear in no answer, no header and no log, wherever they were put.
func TestTokensAppearNowhere(t *testing.T) {
	d := newDaemon(t).guarded()
	close(d.records)
	guess := "canary-guess-" + strings.Repeat("g", 32)
	for _, call := range calls {
		for _, headers := range [][]string{
			bearer(readToken),
			bearer(writeToken),
			bearer(guess),
			{"Authorization", "Basic " + guess},
			{"Authorization", guess},
			{"X-Token", guess, "Cookie", "token=" + guess},
		} {
			wantNoCanary(t, call.what, d.send(call.what, headers...))
		}
		method, path, _ := strings.Cut(call.what, " ")
		path, _, _ = strings.Cut(path, "?")
		wantNoCanary(t, call.what, d.send(method+" "+path+"?token="+guess, bearer(readToken)...))
	}
	if log := d.log.String(); strings.Contains(log, "canary") || !strings.Contains(log, "audit") {
		t.Errorf("log = %s", log)
	}
}

func wantNoCanary(t *testing.T, what string, w *httptest.ResponseRecorder) {
	t.Helper()
	if all := fmt.Sprint(w.Header(), w.Body); strings.Contains(all, "canary") {
		t.Errorf("%s: %s", what, all)
	}
}

// Keys are in answers, but in no header.
func TestKeysAreInNoHeader(t *testing.T) {
	d := newDaemon(t)
	for _, what := range []string{
		"GET /admin/v1/keys?policy=api&key=evil%0d%0aSet-Cookie:%20x=1",
		`POST /admin/v1/keys/reset {"policy":"slots","key":"evil\r\nSet-Cookie: x=1"}`,
		`PUT /admin/v1/keys/override {"policy":"slots","key":"evil\r\nSet-Cookie: x=1","limits":[{"rate":1}],"until":"never"}`,
		"DELETE /admin/v1/keys/override?policy=slots&key=evil%0d%0aSet-Cookie:%20x=1",
	} {
		w := d.send(what)
		if h := fmt.Sprint(w.Header()); strings.Contains(h, "evil") || strings.Contains(h, "Cookie") {
			t.Errorf("%s: headers = %s", what, h)
		}
		if w.Code != 200 || !strings.Contains(w.Body.String(), `evil\r\nSet-Cookie: x=1`) {
			t.Errorf("%s: %d %s", what, w.Code, w.Body)
		}
	}
	if log := d.log.String(); strings.Count(log, "\n") != 3 || strings.Count(log, `key="evil\r\nSet-Cookie: x=1"`) != 3 {
		t.Errorf("log = %s", log)
	}
}
