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

// minSecret is the length of the shortest part of a URL or a header that is taken for a secret: "v2" is none. maxWord is that
// of the longest part of a path or a query that is taken for a word, see isWord.
const (
	minSecret = 8
	maxWord   = 16
)

// isWord reports whether a part of a path or a query is a word such as "go-ethereum", which answers may have in them for
// other reasons: it is short and has neither digits nor upper case. Keys that providers make are not like that.
func isWord(s string) bool {
	return len(s) <= maxWord && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz-_") == ""
}

// noSecrets are headers whose values are never secret.
var noSecrets = []string{"Accept", "Accept-Encoding", "Accept-Language", "Content-Type", "User-Agent"}

// secretsOf returns the parts of an endpoint's URL and headers that a response may repeat: the segments of its path and the
// values of its query, unless they are words, the user and the password, and the words of headers.
func secretsOf(u *url.URL, header http.Header) (list []string) {
	add := func(parts ...string) {
		for _, s := range parts {
			if len(s) >= minSecret {
				list = append(list, s)
			}
		}
	}
	add(slices.DeleteFunc(urlParts(u), isWord)...)
	if u.User != nil {
		password, _ := u.User.Password()
		add(u.User.Username(), password)
	}
	for name, values := range header {
		if slices.Contains(noSecrets, name) {
			continue
		}
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

// urlParts returns the segments of a URL's path and the values of its query, as they are written and unescaped. A parameter
// without a value counts as one: some keys are given like that.
func urlParts(u *url.URL) []string {
	list := slices.Concat(strings.Split(u.EscapedPath(), "/"), strings.Split(u.Path, "/"))
	for _, pair := range strings.Split(u.RawQuery, "&") {
		name, value, _ := strings.Cut(pair, "=")
		part := cmp.Or(value, name)
		list = append(list, part)
		if text, err := url.QueryUnescape(part); err == nil {
			list = append(list, text)
		}
	}
	return list
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

// redactHeader replaces them in the header. The media type stays as it is, without which the body could not be read, but not
// its parameters.
func (e *endpoint) redactHeader(resp *http.Response) {
	for name, values := range resp.Header {
		for i, value := range values {
			kept, rest := "", value
			if name == "Content-Type" {
				kept, rest, _ = strings.Cut(value, ";")
				rest = value[len(kept):]
			}
			if slices.ContainsFunc(e.secrets, func(s string) bool { return strings.Contains(rest, s) }) {
				values[i] = kept + string(e.clean([]byte(rest)))
			}
		}
	}
}
