package gateway

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/fielderr"
)

const page = "https://app.example.com"

// headersOf returns the headers of a response that are about CORS.
func headersOf(h http.Header) (list []string) {
	for _, name := range []string{
		"Vary", "Allow", "Access-Control-Allow-Origin", "Access-Control-Allow-Methods", "Access-Control-Allow-Headers", "Access-Control-Expose-Headers",
		"Access-Control-Allow-Credentials", "Access-Control-Max-Age",
	} {
		for _, v := range h.Values(name) {
			list = append(list, name+": "+v)
		}
	}
	return list
}

func TestCORS(t *testing.T) {
	some, every := []string{page, "http://localhost:3000"}, []string{"*"}
	const expose = "Access-Control-Expose-Headers: RateLimit, RateLimit-Policy, Retry-After, Weir-Upstream, Weir-Limit"
	tests := []struct {
		name    string
		origins []string
		request *http.Request
		want    []string
		status  int
	}{
		{"allowed", some, post(blockNumber, "Origin", page), []string{"Vary: Origin", "Access-Control-Allow-Origin: " + page, expose}, 200},
		{"another origin", some, post(blockNumber, "Origin", "https://evil.example"), []string{"Vary: Origin"}, 200},
		{"an origin that begins as one", some, post(blockNumber, "Origin", page+".evil.example"), []string{"Vary: Origin"}, 200},
		{"no origin", some, post(blockNumber), []string{"Vary: Origin"}, 200},
		{"all", every, post(blockNumber, "Origin", page), []string{"Access-Control-Allow-Origin: *", expose}, 200},
		{"all, a page without an origin", every, post(blockNumber, "Origin", "null"), []string{"Access-Control-Allow-Origin: *", expose}, 200},
		{"none", nil, post(blockNumber, "Origin", page), nil, 200},
		{"an error", some, post(`{`, "Origin", page), []string{"Vary: Origin", "Access-Control-Allow-Origin: " + page, expose}, 400},
		{
			"a page sends what needs no preflight", some, post(blockNumber, "Origin", "https://evil.example", "Content-Type", "text/plain"),
			[]string{"Vary: Origin"},
			415,
		},
		{
			"a preflight", some, preflight(page, "POST", "content-type, X-Secret,Authorization , weir-class, content-type"),
			[]string{
				"Vary: Origin", "Allow: OPTIONS, POST", "Access-Control-Allow-Origin: " + page, "Access-Control-Allow-Methods: POST",
				"Access-Control-Allow-Headers: content-type, authorization, weir-class", "Access-Control-Max-Age: 600",
			},
			204,
		},
		{"a preflight without headers", every, preflight(page, "GET", ""), []string{
			"Allow: OPTIONS, POST", "Access-Control-Allow-Origin: *", "Access-Control-Allow-Methods: POST", "Access-Control-Max-Age: 600",
		}, 204},
		{"a preflight of another origin", some, preflight("https://evil.example", "POST", "content-type"), []string{"Vary: Origin", "Allow: OPTIONS, POST"}, 204},
		{"a preflight for none", nil, preflight(page, "POST", "content-type"), []string{"Allow: OPTIONS, POST"}, 204},
		{"OPTIONS below the route", every, at(preflight(page, "POST", ""), "/v2/key"), []string{"Access-Control-Allow-Origin: *", expose}, 404},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := to(endpointAt("a"))
			c.Origins = tt.origins
			route, p := newRouteTo(t, c)
			p.answer = always(200, `{}`, "Access-Control-Allow-Origin", "https://provider.example", "Access-Control-Allow-Credentials", "true", "Vary", "Cookie")
			w := ask(route, tt.request)
			want(t, "headers", headersOf(w.Result().Header), tt.want)
			want(t, "status", w.Code, tt.status)
			if sent := len(p.received()); (sent == 1) != (tt.status == 200) {
				t.Errorf("it was sent %d times", sent)
			}
		})
	}
}

func preflight(origin, asked, headers string) *http.Request {
	r := method(post("", "Content-Type", ""), http.MethodOptions)
	r.Header.Set("Origin", origin)
	r.Header.Set("Access-Control-Request-Method", asked)
	if headers != "" {
		r.Header.Set("Access-Control-Request-Headers", headers)
	}
	return r
}

func TestValidate(t *testing.T) {
	tests := []struct {
		name string
		set  func(*Config)
		want []string
	}{
		{"nothing wrong", func(c *Config) {
			c.Origins, c.MaxBody = []string{"*", page, "http://localhost:3000", "http://[::1]:80"}[:3], 1
		}, nil},
		{"origins", func(c *Config) {
			c.Origins = []string{"app.example.com", "https://a.example/", "https://A.example", "https://a.example:443", "https://u@a.example", page, page, "null", ""}
		}, []string{
			"gateway: Origins[0]: must be an origin such as https://app.example.com, or *",
			"gateway: Origins[1]: must be the scheme, the host and maybe the port, in lower case, and nothing else: https://app.example.com:8443",
			"gateway: Origins[2]: must be the scheme, the host and maybe the port, in lower case, and nothing else: https://app.example.com:8443",
			"gateway: Origins[3]: must not name the port, as it is that of the scheme: browsers leave it out",
			"gateway: Origins[4]: must be the scheme, the host and maybe the port, in lower case, and nothing else: https://app.example.com:8443",
			"gateway: Origins[6]: is there twice",
			"gateway: Origins[7]: must be an origin such as https://app.example.com, or *",
			"gateway: Origins[8]: must be an origin such as https://app.example.com, or *",
		}},
		{"sizes and methods", func(c *Config) { c.MaxBody, c.Repeatable = 5<<20+1, []string{"", "a*b", "ok*", "fine"} }, []string{
			"gateway: MaxBody: must be 1 to 5242880",
			"gateway: Repeatable[0]: must be a method, or the beginning of one and a *",
			"gateway: Repeatable[1]: must be a method, or the beginning of one and a *",
		}},
		{"the pool", func(c *Config) { c.Pool.JSONRPC, c.Pool.Endpoints[0].Weight = false, -1 }, []string{
			"upstream: Endpoints[0].Weight: must be 1 to 1000000",
			"gateway: Pool.JSONRPC: must be true: only JSON-RPC can be served yet",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := to(endpointAt("a"))
			c.Pool.Name, c.Pool.JSONRPC = "eth", true
			tt.set(&c)
			err := c.Validate()
			var got []string
			for _, each := range fielderr.Split(err) {
				if e := (*fielderr.Error)(nil); !errors.As(each, &e) {
					t.Errorf("%v has no field", each)
				}
				got = append(got, each.Error())
			}
			want(t, "problems", got, tt.want)
			if strings.Contains(strings.Join(got, ""), canary) {
				t.Error("the secret is in an error")
			}
			if _, err := New(nil, c); (err == nil) || tt.want != nil && err.Error() != strings.Join(tt.want, "\n") {
				t.Errorf("New: %v", err)
			}
		})
	}
}
