package config

import (
	"reflect"
	"strings"
	"testing"
)

// A text with a colon in it is one text, also in a list that is inside of { }.
func TestColonsInFlow(t *testing.T) {
	for text, want := range map[string][]string{
		"redis: {addrs: [127.0.0.1:6379]}":                        {"127.0.0.1:6379"},
		"redis: {addrs: [a:1, \"b:2\", c:3:4 , d]}":               {"a:1", "b:2", "c:3:4", "d"},
		"redis: {addrs: [fd00::/8, ::1, ::/0]}":                   {"fd00::/8", "::1", "::/0"},
		"redis: {addrs: [a:1, # b:2\n  c:3]}":                     {"a:1", "c:3"},
		"redis: {x: {}, y: [{z: [q:1]}], addrs: [redis://a:1/2]}": {"redis://a:1/2"},
		"redis: {addrs: [ä:1, b c:2, https://x:80/y]}":            {"ä:1", "b c:2", "https://x:80/y"},
	} {
		r := newReport(text)
		n := parseYAML("x", text, r)
		if n == nil {
			t.Errorf("%s: %v", text, r.err(nil))
			continue
		}
		var got []string
		for _, item := range n.child("redis").child("addrs").items {
			got = append(got, item.text)
			if at := strings.Split(text, "\n")[item.at.line-1]; !strings.HasPrefix(string([]rune(at)[item.at.column-1:]), item.text) && !item.quoted {
				t.Errorf("%s: %s is said to be at %v", text, item.text, item.at)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	if n := parseYAML("x", `{a: [b: c, "d":e, {f:1}]}`, newReport("")); n == nil || len(n.child("a").items) != 3 {
		t.Error(n)
	} else {
		for _, item := range n.child("a").items {
			if item.kind != mapping {
				t.Errorf("%+v is no mapping", item)
			}
		}
	}
	for _, text := range []string{"store: {redis: {addrs: [127.0.0.1:6379]}}", "forward_auth: {trusted_proxies: [fd00::/8, 10.0.0.0/8]}"} {
		if _, err := Parse("weir.yaml", []byte(text), nil, nil); err != nil {
			t.Error(err)
		}
	}
}

// Comments are not shown beside a mistake: there may be a secret in one.
func TestCommentsAreLeftOut(t *testing.T) {
	_, err := Parse("weir.yaml", []byte("log: # all\n  level: loud # CANARY\n"), nil, nil)
	if err == nil || !strings.Contains(err.Error(), "   2 |   level: loud\n     |          ^") {
		t.Error(err)
	}
}
