package redisconn

import (
	"fmt"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	tests := []struct {
		text string
		want string // addresses, user, password, DB, TLS server name
	}{
		{"127.0.0.1:6379", "[127.0.0.1:6379] 0"},
		{"a:1,b:2,[::1]:3", "[a:1 b:2 [::1]:3] 0"},
		{"/run/redis.sock", "[/run/redis.sock] 0"},
		{"/run/a@b://c.sock", "[/run/a@b://c.sock] 0"},
		{"unix:///run/redis.sock", "[/run/redis.sock] 0"},
		{"redis://host:1", "[host:1] 0"},
		{"redis://host:1/", "[host:1] 0"},
		{"redis://host:1/15", "[host:1] 15"},
		{"redis://host", "[host:6379] 0"},
		{"redis://[::1]", "[[::1]:6379] 0"},
		{"redis://[::1]:1/2", "[[::1]:1] 2"},
		{"redis://:pw@host:1", "[host:1] 0 pw"},
		{"redis://user:pw@host:1/3", "[host:1] 3 user pw"},
		{"redis://user:pw@a:1,b", "[a:1 b:6379] 0 user pw"},
		{"redis://us%3Aer:p%40%2F%25@host:1", "[host:1] 0 us:er p@/%"},
		{"redis://user:p:w@host:1", "[host:1] 0 user p:w"},
		{"redis://user:p@/?#w@host:1", "[host:1] 0 user p@/?#w"},
		{"rediss://user:pw@host:1/3", "[host:1] 3 user pw TLS(host)"},
		{"rediss://[::1]", "[[::1]:6379] 0 TLS(::1)"},
		{"rediss://a,b:2", "[a:6379 b:2] 0 TLS()"},
	}
	for _, tt := range tests {
		c, err := Parse(tt.text)
		if err != nil {
			t.Errorf("Parse(%q): %v", tt.text, err)
			continue
		}
		if got := describe(c); got != tt.want {
			t.Errorf("Parse(%q) = %s, want %s", tt.text, got, tt.want)
		}
		if err := c.Validate(); err != nil {
			t.Errorf("Parse(%q): %v", tt.text, err)
		}
	}
}

func describe(c Config) string {
	words := []string{fmt.Sprint(c.Addrs), fmt.Sprint(c.DB)}
	if c.Username != "" {
		words = append(words, c.Username)
	}
	if !c.Password.IsZero() {
		words = append(words, c.Password.Reveal())
	}
	if c.TLS != nil {
		words = append(words, "TLS("+c.TLS.ServerName+")")
	}
	return strings.Join(words, " ")
}

// Each text has the canary where a password might be.
func TestParseErrors(t *testing.T) {
	tests := []struct {
		text string
		want error
	}{
		{"", errNoText},
		{canary, errAddrForm},
		{"host:" + canary, errAddrPort},
		{":" + canary, errAddrHost},
		{"user:" + canary + "@host:1", errNoScheme},
		{"redis:/user:" + canary + "@host:1", errNoScheme},
		{"a:1," + canary, errAddrForm},
		{"a:1,", errAddrForm},
		{"a:1,/run/" + canary, nil},
		{"http://user:" + canary + "@host:1", errScheme},
		{canary + "://host:1", errScheme},
		{"REDIS://host:1", errScheme},
		{"unix://" + canary, errSocket},
		{"unix://user:" + canary + "@/run/redis.sock", errSocket},
		{"/" + canary + "/", errSocket},
		{"redis://", errAddrHost},
		{"redis://:1", errAddrHost},
		{"redis://user@host:1", errLogin},
		{"redis://" + canary + "@host:1", errLogin},
		{"redis://" + canary + ":@host:1", errLogin},
		{"redis://@host:1", errLogin},
		{"redis://user:" + canary + "%zz@host:1", errEscape},
		{"redis://user:" + canary + "%@host:1", errEscape},
		{"redis://%z" + canary + ":x@host:1", errEscape},
		{"redis://user:" + canary, errAddrPort},
		{"redis://user:" + canary + "/0", errAddrPort},
		{"redis://user:x@host:1?password=" + canary, errQuery},
		{"redis://user:x@host:1#" + canary, errQuery},
		{"redis://user:" + canary + "@host:1/" + canary, errDB},
		{"redis://host:1/-1", errDB},
		{"redis://host:1/+1", errDB},
		{"redis://host:1/01", errDB},
		{"redis://host:1/1/2", errDB},
		{"redis://host:1/4294967296", errDB},
		{"redis://ho st:1", errAddrText},
		{"redis://[::1", errAddrForm},
		{"redis://::1", errAddrForm},
		{"redis://user:" + canary + "@/run/redis.sock", nil},
	}
	for _, tt := range tests {
		c, err := Parse(tt.text)
		switch {
		case err == nil:
			t.Errorf("Parse(%q) = %s, want an error", tt.text, describe(c))
		case strings.Contains(err.Error(), canary):
			t.Errorf("Parse(%q) tells the password: %v", tt.text, err)
		case tt.want != nil && !strings.HasSuffix(err.Error(), tt.want.Error()):
			t.Errorf("Parse(%q): %v, want %v", tt.text, err, tt.want)
		}
	}
}

func TestParseErrorNamesAddress(t *testing.T) {
	_, err := Parse("a:1,b,c:3")
	const want = "redisconn: address of Redis: number 2 of 3: want host:port, " +
		"or the path of a socket that begins with /"
	if err == nil || err.Error() != want {
		t.Errorf("err = %v, want %s", err, want)
	}
}

// A Config prints no password, whatever prints it.
func TestConfigPrintsNoPassword(t *testing.T) {
	c, err := Parse("redis://user:" + canary + "@host:1")
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		if text := fmt.Sprintf(verb, c); strings.Contains(text, canary) {
			t.Errorf("%s prints %s", verb, text)
		}
	}
}

// What Parse takes is valid. What it does not take, it does not tell, wherever a password is.
func FuzzParse(f *testing.F) {
	for _, seed := range []struct{ before, after string }{
		{"redis://user:", "@host:6379/0"},
		{"rediss://:", "%40@a:1,b:2"},
		{"", ":6379"},
		{"unix:///run/", ""},
		{"redis://[::1]:6379/", "?#"},
		{"redis://user:%", "@host"},
	} {
		f.Add(seed.before, seed.after)
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		for _, text := range []string{before + after, before + canary + after} {
			c, err := Parse(text)
			if err == nil {
				err = c.Validate()
				if err != nil {
					t.Errorf("Parse(%q): %v", text, err)
				}
				continue
			}
			if strings.Contains(err.Error(), canary) || strings.Contains(err.Error(), "\n") {
				t.Errorf("Parse(%q): %v", text, err)
			}
		}
	})
}
