package target

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// A header is one of Config.Headers.
type header struct {
	name  string
	value template
}

func (p *plan) readHeaders() error {
	var problems []error
	for i, given := range p.Headers {
		h, err := p.readHeader(given)
		if err != nil {
			problems = append(problems, fmt.Errorf("target: Headers[%d]: %w", i, err))
		}
		p.headers = append(p.headers, h)
	}
	if p.address.user != nil && p.Protocol.overHTTP() {
		p.headers = append(p.headers, basicAuth(p.address.user))
	}
	return errors.Join(problems...)
}

// readHeader reads "Name: value", and never quotes the value.
func (p *plan) readHeader(given string) (header, error) {
	name, value, ok := strings.Cut(given, ":")
	value = strings.TrimSpace(value)
	switch {
	case !ok:
		return header{}, errors.New(`must be "Name: value"`)
	case !isToken(name):
		return header{}, errors.New("has a name that is empty or contains characters that names must not have")
	case reserved(name):
		return header{}, fmt.Errorf("%s is set by weir", name)
	case strings.ContainsFunc(value, isControl):
		return header{}, fmt.Errorf("%s has a control character in its value", name)
	}
	t, err := parseTemplate(value)
	if err != nil {
		return header{}, fmt.Errorf("%s: %w", name, secretly(err))
	}
	return header{name, t}, nil
}

// reserved says whether a header belongs to the protocols themselves.
func reserved(name string) bool {
	name = strings.ToLower(name)
	switch name {
	case "content-length", "transfer-encoding", "connection", "te", "trailer", "upgrade":
		return true
	}
	return strings.HasPrefix(name, "grpc-")
}

// isToken says whether s is a token of RFC 9110, as methods and header names are.
func isToken(s string) bool {
	odd := func(r rune) bool {
		alphanumeric := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !alphanumeric && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	}
	return s != "" && !strings.ContainsFunc(s, odd)
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// basicAuth is the header for a URL with a user.
func basicAuth(u *url.Userinfo) header {
	password, _ := u.Password()
	pair := base64.StdEncoding.EncodeToString([]byte(u.Username() + ":" + password))
	return header{"Authorization", template{{kind: literal, text: "Basic " + pair}}}
}
