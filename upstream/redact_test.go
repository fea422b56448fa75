package upstream

import (
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/weirlimit/weir/secret"
)

// TestSecrets shows what of URLs and headers is taken for a secret.
func TestSecrets(t *testing.T) {
	for _, tt := range []struct {
		url    string
		header http.Header
		want   []string
	}{
		{"https://a.example/v2/0123456789abcdef", nil, []string{"0123456789abcdef"}},
		{"https://a.example/go-ethereum/ethereum-mainnet/eth_mainnet", nil, nil},
		{"https://a.example/lowercasebutverylong/UPPERCASE", nil, []string{"lowercasebutverylong", "UPPERCASE"}},
		{"https://a.example/?network=ethereum&key=abcdefg1", nil, []string{"abcdefg1"}},
		{"https://a.example/?abcdefg1", nil, []string{"abcdefg1"}},
		{"https://a.example/?abcdefg1&v=2", nil, []string{"abcdefg1"}},
		{"https://a.example/?v=2&abcdefg1=", nil, []string{"abcdefg1"}},
		{"https://a.example/?abc%2Fefg1", nil, []string{"abc%2Fefg1", "abc/efg1", `abc\/efg1`}},
		{"https://lowercase:password@a.example/", nil, []string{"lowercase", "password"}},
		{"https://a.example/", http.Header{"Accept": {"application/json"}, "Content-Type": {"application/json"}, "User-Agent": {"go-ethereum/1.17"}}, nil},
		{"https://a.example/", http.Header{"X-Auth": {"lowercase"}, "Origin": {"https://app.example"}}, []string{"https://app.example", `https:\/\/app.example`, "lowercase"}},
	} {
		u, err := parseURL(secret.New(tt.url))
		if err != nil {
			t.Fatal(err)
		}
		got := secretsOf(u, tt.header)
		slices.Sort(got)
		slices.Sort(tt.want)
		want(t, tt.url, got, tt.want)
	}
}

// TestWordsAreNotRedacted lets an endpoint answer with words that are in its URL and its headers, too.
func TestWordsAreNotRedacted(t *testing.T) {
	pool, p := newPool(t, Config{Endpoints: []Endpoint{endpointAt("a", func(e *Endpoint) {
		e.RPC = secret.New("https://a.example/go-ethereum/?network=ethereum&abcdefg1")
		e.Headers = []Header{{"Accept", secret.New("application/json")}, {"X-Type", secret.New("application/json")}}
	})}})
	p.answer = func(*http.Request, string) (*http.Response, error) {
		return reply(200, `{"id":1,"result":"go-ethereum of ethereum at abcdefg1"}`, "Content-Type", "application/json; a=abcdefg1"), nil
	}
	resp, err := pool.Send(request(t.Context(), 0), call())
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	want(t, "body", string(body), `{"id":1,"result":"go-ethereum of ethereum at ***"}`)
	want(t, "media type", resp.Header.Get("Content-Type"), "application/json; a=***")
}
