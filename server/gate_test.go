package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// countingGate stands before a handler that counts. It knows the token "known".
func countingGate(calls *int, names ...string) *gate {
	return &gate{
		origin: http.NewCrossOriginProtection(),
		names:  func() []string { return names },
		known:  func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer known" },
		next:   http.HandlerFunc(func(http.ResponseWriter, *http.Request) { *calls++ }),
	}
}

// A browser may use localhost, addresses and configured names.
func TestHosts(t *testing.T) {
	tests := []struct {
		host string
		want bool
	}{
		{"localhost", true},
		{"LOCALHOST:80", true},
		{"localhost:8080", true},
		{"127.0.0.1", true},
		{"127.0.0.1:65535", true},
		{"127.8.9.1:1", true},
		{"[::1]", true},
		{"[::1]:8080", true},
		{"", false},
		{":8080", false},
		{"example.com", false},
		{"example.com:8080", false},
		{"localhost.example.com", false},
		{"localhost:8080.example.com", false},
		{"localhost:123456", false},
		{"127.0.0.1.example.com", false},
		{"10.0.0.1:8080", true}, // an address cannot be pointed anywhere
		{"limits.example.com", true},
		{"Limits.Example.com:8080", true},
		{"[::1%25lo]:80", false},
		{"localhost@example.com", false},
		{"2130706433", false},
		{"weir.default.svc.cluster.local:8080", true},
		{"weir.svc.cluster.local", true},
		{"WEIR.SVC.cluster.local.", true},
		{"svc.cluster.local", false},
		{".svc.cluster.local", false},
		{"evilsvc.cluster.local", false},
		{"weir.svc.cluster.local.example.com", false},
		{"limits.example.com.", true},
	}
	calls := 0
	h := countingGate(&calls, "limits.example.com", "*.svc.cluster.local")
	for _, tt := range tests {
		r := httptest.NewRequest("POST", "/v1/check", nil)
		r.Host = tt.host
		r.Header.Set("User-Agent", "Mozilla/5.0")
		calls = 0
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := w.Code == http.StatusOK && calls == 1; got != tt.want {
			t.Errorf("host %q: status %d after %d calls, want served = %v", tt.host, w.Code, calls, tt.want)
		}
		if !tt.want && (w.Code != http.StatusMisdirectedRequest || !strings.Contains(w.Body.String(), "is not a name of this server")) {
			t.Errorf("host %q: %d %s", tt.host, w.Code, w.Body)
		}
	}
}

// Only what a page in a browser can send must name this server: see couldBeBrowser.
func TestHostsOfBrowsers(t *testing.T) {
	const firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
	tests := []struct {
		name    string
		headers []string
		status  int
	}{
		{"curl", []string{"User-Agent", "curl/8.14.1", "Accept", "*/*"}, 200},
		{"Go", []string{"User-Agent", "Go-http-client/1.1", "Accept-Encoding", "gzip"}, 200},
		{"Python", []string{"User-Agent", "python-requests/2.32", "Accept-Encoding", "gzip, deflate", "Accept", "*/*"}, 200},
		{"Node.js", []string{"User-Agent", "node", "Accept-Language", "*", "Sec-Fetch-Mode", "cors"}, 200},
		{"nothing", nil, 200},
		{"a wrong token", []string{"Authorization", "Bearer wrong"}, 200}, // and refused elsewhere, if one is needed
		{"a page", []string{"User-Agent", firefox, "Accept-Language", "en"}, 421},
		{"a page that sets its user agent", []string{"User-Agent", "curl", "Accept-Language", "en"}, 421},
		{"a page that empties its language", []string{"User-Agent", "curl", "Accept-Language", ""}, 421},
		{"a page with a token", []string{"User-Agent", firefox, "Authorization", "Bearer wrong"}, 421},
		{"a page that knows a token", []string{"User-Agent", firefox, "Authorization", "Bearer known"}, 200},
		{"a form", []string{"User-Agent", firefox, "Origin", "null"}, 421},
		{"a link", []string{"User-Agent", "old", "Upgrade-Insecure-Requests", "1"}, 421},
		{"an image", []string{"Referer", "http://rebound.example/"}, 421},
		{"with a cookie", []string{"Cookie", "a=b"}, 421},
		{"over TLS", []string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "cors"}, 421},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			calls := 0
			r := httptest.NewRequest("GET", "http://weir:8080/v1/auth/default", nil)
			for i := 0; i+1 < len(tt.headers); i += 2 {
				r.Header.Set(tt.headers[i], tt.headers[i+1])
			}
			w := httptest.NewRecorder()
			countingGate(&calls).ServeHTTP(w, r)
			if w.Code != tt.status || (calls == 1) != (tt.status == 200) {
				t.Errorf("status %d after %d calls, want %d", w.Code, calls, tt.status)
			}
			if tt.status != http.StatusOK && !strings.Contains(w.Body.String(), `hosts: [\"weir\"]`) {
				t.Errorf("%s does not say what to configure", w.Body)
			}
		})
	}
}

func TestOtherOriginsCannotCharge(t *testing.T) {
	tests := []struct {
		name    string
		headers []string
		status  int
	}{
		{"no browser", nil, 200},
		{"own page", []string{"Sec-Fetch-Site", "same-origin", "Origin", "http://localhost:8080"}, 200},
		{"own page, old browser", []string{"Origin", "http://localhost:8080"}, 200},
		{"typed by the user", []string{"Sec-Fetch-Site", "none"}, 200},
		{"cross-site", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"another port", []string{"Sec-Fetch-Site", "same-site", "Origin", "http://localhost:3000"}, 403},
		{"cross-origin, old browser", []string{"Origin", "https://example.com"}, 403},
		{"sandboxed", []string{"Origin", "null"}, 403},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			calls := 0
			r := httptest.NewRequest("POST", "http://localhost:8080/v1/check", nil)
			for i := 0; i+1 < len(tt.headers); i += 2 {
				r.Header.Set(tt.headers[i], tt.headers[i+1])
			}
			w := httptest.NewRecorder()
			countingGate(&calls).ServeHTTP(w, r)
			if w.Code != tt.status || (calls == 1) != (tt.status == 200) {
				t.Errorf("status %d after %d calls, want %d", w.Code, calls, tt.status)
			}
			if tt.status != http.StatusOK && !strings.Contains(w.Body.String(), "another origin") {
				t.Errorf("%s", w.Body)
			}
		})
	}
}

func TestConnectIsRefused(t *testing.T) {
	r := httptest.NewRequest("CONNECT", "localhost:443", nil)
	w := httptest.NewRecorder()
	calls := 0
	countingGate(&calls).ServeHTTP(w, r)
	if w.Code != http.StatusMethodNotAllowed || calls > 0 || w.Header().Get("Connection") != "close" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}
