package clientip

import (
	"net/netip"
	"strings"
)

// cutComma takes the last entry off a list without quotes.
func cutComma(list string) (before, last string, more bool) {
	i := strings.LastIndexByte(list, ',')
	if i < 0 {
		return "", list, false
	}
	return list[:i], list[i+1:], true
}

// cutElement takes the last element off a list of RFC 7239, in which commas may be
// quoted. It reads from the right, so that a quote left open by the client, further
// left, cannot swallow what a proxy appended. Read that way, a quote opens a string
// that reaches left to the next quote without a backslash before it: quotes inside
// have one, and the one at the beginning follows an equals sign.
func cutElement(list string) (before, last string, more bool) {
	quoted := false
	for i := len(list) - 1; i >= 0; i-- {
		switch {
		case list[i] == '"' && !(quoted && i > 0 && list[i-1] == '\\'):
			quoted = !quoted
		case list[i] == ',' && !quoted:
			return list[:i], list[i+1:], true
		}
	}
	return "", list, false
}

// parseElement returns the address of an element such as
//
//	for="[2001:db8::1]:4711";proto=https;by=203.0.113.43
//
// It returns false if the element is malformed anywhere, has no address, or two.
func parseElement(element string) (addr netip.Addr, ok bool) {
	rest := trim(element)
	for rest != "" {
		if rest[0] == ';' { // pairs may be empty
			rest = trim(rest[1:])
			continue
		}
		var name, value string
		var good bool
		if name, value, rest, good = cutPair(rest); !good {
			return netip.Addr{}, false
		}
		if !strings.EqualFold(name, "for") {
			continue
		}
		if addr, good = parseNode(value); !good || ok {
			return netip.Addr{}, false
		}
		ok = true
	}
	return addr, ok
}

// cutPair takes the first pair off an element. The rest is empty or begins with a
// semicolon.
func cutPair(s string) (name, value, rest string, ok bool) {
	name, rest, ok = strings.Cut(s, "=")
	if !ok || !isToken(name) {
		return "", "", "", false
	}
	if strings.HasPrefix(rest, `"`) {
		value, rest, ok = cutQuoted(rest[1:])
	} else {
		value, rest = cutBefore(rest, ';')
	}
	rest = trim(rest)
	return name, value, rest, ok && (rest == "" || rest[0] == ';')
}

// cutBefore returns s up to c, which stays at the beginning of the rest.
func cutBefore(s string, c byte) (before, rest string) {
	if i := strings.IndexByte(s, c); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}

// cutQuoted returns what comes before the closing quote, without the backslashes,
// and after it.
func cutQuoted(s string) (value, rest string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), s[i+1:], true
		case '\\':
			if i++; i == len(s) {
				return "", "", false
			}
		}
		b.WriteByte(s[i])
	}
	return "", "", false
}

// isToken says whether s can be the name of a pair. Those of hidden ports can, too.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && strings.IndexByte("0123456789!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

// parseNode returns the address of "192.0.2.1", "2001:db8::1" or "[2001:db8::1]",
// of which the first and the last may have a port. Proxies differ, so all headers
// may have all of these. A node that hides its address has none.
func parseNode(node string) (netip.Addr, bool) {
	node = trim(node)
	host, port, isV6 := node, "", strings.HasPrefix(node, "[")
	switch {
	case isV6:
		var closed bool
		if host, port, closed = strings.Cut(node[1:], "]"); !closed {
			return netip.Addr{}, false
		}
	case strings.Count(node, ":") == 1:
		host, port = cutBefore(node, ':')
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || isV6 && !addr.Is6() || !isPort(port) {
		return netip.Addr{}, false
	}
	return plain(addr), true
}

// isPort says whether s is nothing, ":" and up to five digits, or ":_" and a name.
func isPort(s string) bool {
	if s == "" {
		return true
	}
	if len(s) < 2 || s[0] != ':' {
		return false
	}
	if s[1] == '_' {
		return len(s) > 2 && isToken(s[2:])
	}
	return len(s) <= 6 && strings.Trim(s[1:], "0123456789") == ""
}

// trim removes the white space that may surround entries.
func trim(s string) string { return strings.Trim(s, " \t") }
