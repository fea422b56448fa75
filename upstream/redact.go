package upstream

import (
	"bytes"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// minSecret is the length of the shortest part of a URL or a header that is taken for a secret: "v2" is none.
const minSecret = 8

// secretsOf returns the parts of an endpoint's URL and headers that a response may repeat: the segments of its path, the
// values of its query, the user and the password, and the words of headers.
func secretsOf(u *url.URL, header http.Header) (list []string) {
	add := func(parts ...string) {
		for _, s := range parts {
			if len(s) >= minSecret {
				list = append(list, s)
			}
		}
	}
	add(strings.Split(u.EscapedPath(), "/")...)
	add(strings.Split(u.Path, "/")...)
	for _, pair := range strings.Split(u.RawQuery, "&") {
		_, value, _ := strings.Cut(pair, "=")
		add(value)
	}
	for _, values := range u.Query() {
		add(values...)
	}
	if u.User != nil {
		password, _ := u.User.Password()
		add(u.User.Username(), password)
	}
	for _, values := range header {
		add(strings.Fields(strings.Join(values, " "))...)
	}
	slices.SortFunc(list, func(a, b string) int { return len(b) - len(a) }) // one may be a part of another
	return list
}

// redact replaces the endpoint's secrets in a response whose body, which is known, is an error. Some providers
// repeat the URL of the request, and so the key.
func (e *endpoint) redact(resp *http.Response, body []byte) {
	if resp.StatusCode < 300 && !bytes.Contains(body, []byte(`"error"`)) {
		return
	}
	clean := body
	for _, s := range e.secrets {
		clean = bytes.ReplaceAll(clean, []byte(s), []byte("***"))
	}
	if len(clean) != len(body) || !bytes.Equal(clean, body) {
		setBody(resp, clean)
	}
}
