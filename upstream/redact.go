package upstream

import (
	"bytes"
	"cmp"
	"fmt"
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
		for _, value := range values {
			add(strings.Fields(value)...)
			add(strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(` ;,="`, r) })...)
		}
	}
	for _, one := range slices.Clone(list) {
		list = append(list, escaped(one)...)
	}
	slices.SortFunc(list, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) }) // one may be a part of another
	return slices.Compact(list)
}

// escaped returns how a secret may be written in a text of JSON.
func escaped(s string) (list []string) {
	list = append(list, strings.ReplaceAll(s, "/", `\/`))
	for _, format := range []string{`\u%04x`, `\u%04X`} {
		var b strings.Builder
		for _, r := range s {
			if strings.ContainsRune(`+&<>'"`+"`", r) {
				fmt.Fprintf(&b, format, r)
			} else {
				b.WriteRune(r)
			}
		}
		list = append(list, b.String())
	}
	return list
}

// clean returns a text without the endpoint's secrets.
func (e *endpoint) clean(text []byte) []byte {
	for _, s := range e.secrets {
		text = bytes.ReplaceAll(text, []byte(s), []byte("***"))
	}
	return text
}

// redactBody replaces the endpoint's secrets in a response whose body is known. Some providers repeat the URL of the request,
// and so the key.
func (e *endpoint) redactBody(resp *http.Response, body []byte) {
	if slices.ContainsFunc(e.secrets, func(s string) bool { return bytes.Contains(body, []byte(s)) }) {
		setBody(resp, e.clean(body))
	}
}

// redactHeader replaces them in the header.
func (e *endpoint) redactHeader(resp *http.Response) {
	for _, values := range resp.Header {
		for i, value := range values {
			if slices.ContainsFunc(e.secrets, func(s string) bool { return strings.Contains(value, s) }) {
				values[i] = string(e.clean([]byte(value)))
			}
		}
	}
}
