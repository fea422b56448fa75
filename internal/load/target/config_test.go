package target

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestValidateAccepts(t *testing.T) {
	for _, c := range []Config{
		{URL: "http://127.0.0.1"},
		{URL: "HTTP://[::1]:8080/a/{{rand 10}}?b={{seq}}"},
		{URL: "https://user:pa%2Fss@example.com?x={{uuid}}", Protocol: HTTP2, Method: "PUT", Body: "{{seq}}", Headers: []string{"X-Id: {{seq}}", "Host: other"}},
		{URL: "http://localhost:1/", Protocol: JSONRPC, Method: "eth_call", Body: `[{{seq}}, {"a":"{{uuid}}"}]`},
		{URL: "grpc://localhost:1/", Method: "/a.B/C", Body: `{"n":{{seq}}}`, Headers: []string{"x-a: b"}, Descriptors: "x"},
		{URL: "redis://:secret@localhost/2", Command: []string{"GET", "{{zipf 100}}"}},
		{URL: "rediss://localhost:6380", Command: []string{"PING"}, Connections: 5, Timeout: time.Second, Insecure: true},
	} {
		if err := c.Validate(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestValidateRefuses(t *testing.T) {
	http := func(change func(*Config)) Config {
		c := Config{URL: "http://127.0.0.1/"}
		change(&c)
		return c
	}
	url := func(s string) Config { return Config{URL: s} }
	for _, tt := range []struct {
		config Config
		parts  []string
	}{
		{url(""), []string{"URL: is missing"}},
		{url("127.0.0.1:80"), []string{"URL: must begin with one of http://, https://"}},
		{url("ftp://secret@host"), []string{"URL: must begin with"}},
		{url("http:///path"), []string{"URL: has no host"}},
		{url("http://h:0/"), []string{"port 0"}},
		{url("http://h:65536/"), []string{"port 65536"}},
		{url("http://user:secret/more@host/"), []string{"URL: has a host, port or user", "%2F"}},
		{url("http://user:sec ret@ho st/"), []string{"URL: has a host, port or user"}},
		{url("http://{{seq}}.example.com/"), []string{"URL: has a variable in its host"}},
		{url("http://h:{{seq}}/"), []string{"URL: has a variable in its host"}},
		{url("ht{{seq}}tp://h/"), []string{"URL: must begin with"}},
		{url("http://h/#part"), []string{"URL: has a fragment"}},
		{url("http://h/?a=b c&key=secret"), []string{"URL: has a space", "%20"}},
		{url("http://h/{{rnd}}?key=secret"), []string{"URL: has a variable", `"{{rnd}}"`, "known are"}},
		{url("http://h/%zz?key=secret"), []string{"URL: ", "%zz"}},
		{Config{URL: "redis://h", Protocol: HTTP2}, []string{"URL: begins with redis://, but Protocol http2 needs http:// or https://"}},
		{Config{URL: "http://h", Protocol: 9}, []string{"Protocol Protocol(9)"}},
		{http(func(c *Config) { c.Connections = -1 }), []string{"Connections -1"}},
		{http(func(c *Config) { c.Timeout = -1 }), []string{"Timeout -1ns"}},
		{http(func(c *Config) { c.Method = "GE T" }), []string{`Method "GE T"`}},
		{http(func(c *Config) { c.Body = "{{seq" }), []string{"Body: has a variable", "not closed"}},
		{http(func(c *Config) { c.Headers = []string{"A: b", "secret"} }), []string{"Headers[1]", "Name: value"}},
		{http(func(c *Config) { c.Headers = []string{"A b: secret"} }), []string{"Headers[0]", "name"}},
		{http(func(c *Config) { c.Headers = []string{"A: secret\r\nB: c"} }), []string{"Headers[0]: A has a control character"}},
		{http(func(c *Config) { c.Headers = []string{"A: {{secret}}"} }), []string{"Headers[0]: A: ", "is not a variable"}},
		{http(func(c *Config) { c.Headers = []string{"A: {{secret"} }), []string{"Headers[0]: A: ", "not closed"}},
		{http(func(c *Config) { c.Headers = []string{"Content-Length: 5"} }), []string{"Content-Length is set by weir"}},
		{http(func(c *Config) { c.Command = []string{"GET"}; c.Descriptors = "x" }), []string{"Command, Descriptors: not used by Protocol http1"}},
		{http(func(c *Config) { c.Protocol = JSONRPC }), []string{"Method: is missing"}},
		{http(func(c *Config) { c.Protocol, c.Method = JSONRPC, "{{seq}}" }), []string{"Method: cannot contain variables"}},
		{http(func(c *Config) { c.Protocol, c.Method, c.Body = JSONRPC, "m", "[{{seq}}" }), []string{"Body: JSON-RPC needs"}},
		{http(func(c *Config) { c.Protocol, c.Method, c.Body = JSONRPC, "m", `[{{uuid}}]` }), []string{"Body: JSON-RPC needs"}},
		{http(func(c *Config) { c.Protocol, c.Method, c.Body = JSONRPC, "m", "{{seq}}" }), []string{"Body: JSON-RPC needs an array or an object"}},
		{Config{URL: "grpc://h"}, []string{`Method "": must be "package.Service/Method"`}},
		{Config{URL: "grpc://h", Method: "a.B.C"}, []string{`Method "a.B.C"`}},
		{Config{URL: "grpc://h", Method: "a.B/C", Body: "{"}, []string{"Body: gRPC needs the JSON"}},
		{Config{URL: "grpc://h/a.B/C", Method: "a.B/C"}, []string{"URL: has a path", "Method"}},
		{Config{URL: "grpc://secret:secret@h", Method: "a.B/C"}, []string{"URL: has a user"}},
		{Config{URL: "grpc://h", Method: "a.B/C", Headers: []string{"grpc-timeout: 1S"}}, []string{"grpc-timeout is set by weir"}},
		{url("redis://h"), []string{"Command: is missing"}},
		{Config{URL: "redis://h", Command: []string{"subscribe", "x"}}, []string{"Command SUBSCRIBE"}},
		{Config{URL: "redis://h", Command: []string{"GET", "{{x}}"}}, []string{"Command[1]: has a variable", "{{x}}"}},
		{Config{URL: "redis://h/secret", Command: []string{"PING"}}, []string{"URL: has a path that is not the number of a database"}},
		{Config{URL: "redis://user@h", Command: []string{"PING"}}, []string{"URL: has a user, but no password"}},
		{Config{URL: "redis://h", Command: []string{"PING"}, Method: "x", Body: "y", Headers: []string{"A: b"}}, []string{"Method, Headers, Body: not used by Protocol resp"}},
	} {
		err := tt.config.Validate()
		wantParts(t, err, tt.parts...)
		if err != nil && !strings.HasPrefix(err.Error(), "target: ") {
			t.Errorf("%q does not begin with the package", err)
		}
	}
}

// TestValidateJoins shows that one call reports everything.
func TestValidateJoins(t *testing.T) {
	err := Config{URL: "http://h/{{x}}", Connections: -1, Body: "{{y}}", Headers: []string{"a", "b"}, Command: []string{"c"}}.Validate()
	wantParts(t, err, "Connections", "URL", "Body", "Headers[0]", "Headers[1]", "Command")
}

func TestLoopback(t *testing.T) {
	for _, tt := range []struct {
		url  string
		want bool
	}{
		{"http://127.0.0.1:80/", true},
		{"http://127.9.9.9", true},
		{"redis://user:pass@[::1]:6379/1", true},
		{"grpc://[::ffff:127.0.0.1]:1", true},
		{"http://localhost/{{seq}}", true},
		{"http://LOCALHOST", true},
		{"http://0.0.0.0", false},
		{"http://10.0.0.1", false},
		{"http://[::]", false},
		{"http://[2001:db8::1]", false},
		{"http://localhost.example.com", false},
		{"http://127.0.0.1.example.com", false},
		{"http://127.0.0.1@example.com", false},
		{"http://127.1", false}, // a name to us, so not looked up
	} {
		if got, err := (Config{URL: tt.url}).Loopback(); got != tt.want || err != nil {
			t.Errorf("%s: %v, %v", tt.url, got, err)
		}
	}
	_, err := Config{URL: "http://secret:secret/@x"}.Loopback()
	wantParts(t, err, "target: URL")
}

func TestOnlyLoopback(t *testing.T) {
	local, other := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.0.0.1")
	if onlyLoopback(nil) || onlyLoopback([]netip.Addr{local, other}) || !onlyLoopback([]netip.Addr{local, netip.IPv6Loopback()}) {
		t.Error("a name is loopback if all its addresses are, and there is one")
	}
}

func TestParseProtocol(t *testing.T) {
	for p := Auto; p <= RESP; p++ {
		if got, err := ParseProtocol(p.String()); got != p || err != nil {
			t.Errorf("%v: %v, %v", p, got, err)
		}
	}
	_, err := ParseProtocol("spdy")
	wantParts(t, err, `"spdy"`, "http2, grpc")
}
