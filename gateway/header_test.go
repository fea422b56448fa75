package gateway

import (
	"net/http"
	"testing"
)

// TestRequestHeaders shows all that an endpoint gets of a request, and of what it does not get some.
func TestRequestHeaders(t *testing.T) {
	route, p := newRouteTo(t, to(endpointAt("a")))
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	r := post(blockNumber,
		"Authorization", "Bearer caller", "Proxy-Authorization", "Basic caller", "Cookie", "session=caller", "X-Api-Key", "caller", "Api-Key", "caller",
		"X-Forwarded-For", "192.0.2.1", "X-Forwarded-Host", "h", "X-Real-Ip", "192.0.2.1", "Forwarded", "for=192.0.2.1", "Via", "1.1 caller",
		"Weir-Class", "realtime", "Weir-Token", "caller", "Origin", page, "Referer", page+"/private", "User-Agent", "wallet/1.0",
		"Accept-Encoding", "br", "Accept", "text/html", "Te", "trailers", "Upgrade", "websocket", "Connection", "Upgrade, X-Hop", "X-Hop", "1",
		"Keep-Alive", "timeout=5", "Trailer", "X-Trailer", "Expect", "100-continue", "Content-Type", "application/json; charset=utf-8", "Baggage", "user=1",
		"Traceparent", parent, "Tracestate", "vendor=secret", "Range", "bytes=0-1", "If-None-Match", "x",
	)
	r.URL.RawQuery = "apikey=caller"
	if w := ask(route, r); w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	got := p.requests[0]
	want(t, "headers", got.Header, http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json"}, "User-Agent": {"weir"}, "Traceparent": {parent}, "X-Api-Key": {canary},
	})
	want(t, "URL", got.URL.String(), "https://a.example/v2/"+canary+"?key="+canary)
	if got.Method != http.MethodPost || got.Host != "" || got.Trailer != nil || got.Close || got.ContentLength != int64(len(blockNumber)) || got.TransferEncoding != nil {
		t.Errorf("%+v", got)
	}
}

// TestMalformedHeaders passes on what clients compute with only if it is well-formed.
func TestMalformedHeaders(t *testing.T) {
	for _, tt := range []struct {
		name   string
		values []string
		passed bool
	}{
		{"Retry-After", []string{"7"}, true},
		{"Retry-After", []string{"Sun, 17 May 2026 12:00:00 GMT"}, true},
		{"Retry-After", []string{"-1"}, false},
		{"Retry-After", []string{"soon"}, false},
		{"Retry-After", []string{"1.5"}, false},
		{"Retry-After", []string{"1", "2"}, false},
		{"Ratelimit", []string{`"v";r=1`, `"w";r=2`}, true},
		{"Ratelimit", []string{"limit=10, remaining=1"}, false},
		{"Ratelimit-Policy", []string{`"v";q=1;w=1`}, true},
		{"Ratelimit-Policy", []string{`"v`}, false},
		{"Cache-Control", []string{"no-store"}, true},
	} {
		route, p := newRouteTo(t, to(endpointAt("a")))
		p.answer = func(*http.Request, string) (*http.Response, error) {
			resp := reply(400, `{"error":{}}`)
			resp.Header[tt.name] = tt.values
			return resp, nil
		}
		if got := ask(route, post(blockNumber)).Result().Header[tt.name]; (len(got) > 0) != tt.passed {
			t.Errorf("%s: %q became %q", tt.name, tt.values, got)
		}
	}
}

// TestStatuses passes on those that a server of JSON-RPC has, and errors.
func TestStatuses(t *testing.T) {
	for status, want := range map[int]int{
		200: 200, 202: 202, 204: 204, 400: 400, 418: 418, 500: 500, 599: 599,
		201: 502, 203: 502, 205: 502, 206: 502, 299: 502, 302: 502, 304: 502, 600: 502, 999: 502,
	} {
		route, p := newRouteTo(t, to(endpointAt("a")))
		p.answer = always(status, "{}")
		if got := ask(route, post(`{"id":1,"method":"eth_x"}`)).Code; got != want {
			t.Errorf("%d became %d, want %d", status, got, want)
		}
	}
}

// TestResponseHeaders shows all that a caller gets of a response.
func TestResponseHeaders(t *testing.T) {
	route, p := newRouteTo(t, to(endpointAt("a")))
	p.answer = func(*http.Request, string) (*http.Response, error) {
		resp := reply(200, "{}",
			"Set-Cookie", "session=provider", "Alt-Svc", `h3=":443"`, "Strict-Transport-Security", "max-age=1", "Server", "nginx", "Via", "1.1 cdn", "Cf-Ray", "1",
			"Access-Control-Allow-Origin", "*", "Location", "https://a.example/"+canary, "Link", "<https://a.example/"+canary+">", "Www-Authenticate", "Basic",
			"Connection", "close", "Keep-Alive", "timeout=5", "Trailer", "X-Trailer", "Weir-Upstream", "other", "Weir-Limit", "other", "X-Request-Id", "1", "Nel", "{}",
			"Content-Type", "application/json; charset=utf-8", "Cache-Control", "max-age=5", "Retry-After", "3", "RateLimit", `"v";r=1`, "Content-Length", "2")
		resp.Trailer = http.Header{"X-Trailer": {"provider"}}
		return resp, nil
	}
	w := ask(route, post(blockNumber))
	want(t, "headers", w.Result().Header, http.Header{
		"Content-Type": {"application/json; charset=utf-8"}, "Cache-Control": {"max-age=5"}, "Retry-After": {"3"}, "Ratelimit": {`"v";r=1`}, "Content-Length": {"2"},
		"Weir-Upstream": {"a"},
	})
	if trailer := w.Result().Trailer; len(trailer) > 0 {
		t.Errorf("%v", trailer)
	}
}
