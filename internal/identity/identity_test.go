package identity

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir/internal/fielderr"
	"github.com/weirlimit/weir/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// token returns a token that is long enough, and like no other.
func token(name string) string { return name + strings.Repeat("-", MinToken) }

func tokens(names ...string) (list []secret.Secret) {
	for _, name := range names {
		list = append(list, secret.New(token(name)))
	}
	return list
}

func secrets(texts ...string) (list []secret.Secret) {
	for _, text := range texts {
		list = append(list, secret.New(text))
	}
	return list
}

func clients(t testing.TB, list ...Client) *Clients {
	t.Helper()
	c, err := NewClients(list)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func operators(t testing.TB, list ...Operator) *Operators {
	t.Helper()
	o, err := NewOperators(list)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestNewClients(t *testing.T) {
	long := strings.Repeat("n", 64)
	tests := []struct {
		name string
		list []Client
		want []string // a part of each problem
	}{
		{"none", nil, nil},
		{"fine", []Client{{Name: "a", Tokens: tokens("a", "a2")}, {Name: "B-_.9", Certificate: "b"}, {Name: long, Tokens: tokens("l")}}, nil},
		{"shortest token", []Client{{Name: "a", Tokens: secrets(strings.Repeat("x", 32))}}, nil},
		{"no name", []Client{{Tokens: tokens("a")}}, []string{`client "": name: must`}},
		{"long name", []Client{{Name: long + "n", Tokens: tokens("a")}}, []string{"must be 1 to 64"}},
		{"spaces", []Client{{Name: "a b", Tokens: tokens("a")}}, []string{`"a b": name: must`}},
		{"line end", []Client{{Name: "a\r\nb", Tokens: tokens("a")}}, []string{`"a\r\nb": name: must`}},
		{"slash", []Client{{Name: "a/b", Tokens: tokens("a")}}, []string{"name: must be"}},
		{"not ASCII", []Client{{Name: "ä", Tokens: tokens("a")}}, []string{"name: must be"}},
		{"not text", []Client{{Name: "\xff", Tokens: tokens("a")}}, []string{"name: must be"}},
		{"name twice", []Client{{Name: "a", Tokens: tokens("a")}, {Name: "a", Tokens: tokens("b")}}, []string{`"a": name: is also the name of`}},
		{"no proof", []Client{{Name: "a"}}, []string{`client "a": token: has no token and no certificate`}},
		{"short token", []Client{{Name: "a", Tokens: secrets(strings.Repeat("x", 31))}}, []string{"at least 32 bytes"}},
		{"empty token", []Client{{Name: "a", Tokens: []secret.Secret{{}}}}, []string{"at least 32 bytes"}},
		{"token with a space", []Client{{Name: "a", Tokens: secrets(token("a b"))}}, []string{"printable ASCII"}},
		{"token with a line end", []Client{{Name: "a", Tokens: secrets(token("a") + "\n")}}, []string{"printable ASCII"}},
		{"token with DEL", []Client{{Name: "a", Tokens: secrets(token("a\x7f"))}}, []string{"printable ASCII"}},
		{"token that is not ASCII", []Client{{Name: "a", Tokens: secrets(token("ä"))}}, []string{"printable ASCII"}},
		{"token twice", []Client{{Name: "a", Tokens: tokens("a")}, {Name: "b", Tokens: tokens("a")}}, []string{`"b": token: is also the token of "a"`}},
		{"second token wrong", []Client{{Name: "a", Tokens: append(tokens("a"), secret.New("x"))}}, []string{"at least 32 bytes"}},
		{"certificate twice", []Client{{Name: "a", Certificate: "c"}, {Name: "b", Certificate: "c"}}, []string{`"b": certificate: is also the certificate of "a"`}},
		{
			"everything at once",
			[]Client{{Name: "a b"}, {Name: "c", Tokens: secrets("x")}, {Name: "c", Tokens: tokens("c")}},
			[]string{`"a b": name: must`, "has no token", "at least 32", "is also the name"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := NewClients(tt.list)
			wantProblems(t, err, tt.want)
		})
	}
}

func wantProblems(t *testing.T, err error, want []string) {
	t.Helper()
	got := fielderr.Split(err)
	if len(got) != len(want) {
		t.Fatalf("%v, want %d problems", err, len(want))
	}
	for i, part := range want {
		if !strings.Contains(got[i].Error(), part) {
			t.Errorf("%q lacks %q", got[i], part)
		}
	}
}

func TestNewOperators(t *testing.T) {
	tests := []struct {
		name string
		list []Operator
		want []string
	}{
		{"none", nil, nil},
		{"fine", []Operator{{Name: "a", Tokens: tokens("a"), Scopes: Read}, {Name: "b", Tokens: tokens("b", "b2"), Scopes: Write | Block}}, nil},
		{"no scopes", []Operator{{Name: "a", Tokens: tokens("a")}}, []string{"scopes: is missing"}},
		{"no token", []Operator{{Name: "a", Scopes: Read}}, []string{"has no token"}},
		{"all", []Operator{{Name: "?"}, {Name: "a", Tokens: secrets("x"), Scopes: Read}}, []string{"name: must be", "has no token", "scopes: is missing", "token: a token has at least 32"}},
		{"token twice", []Operator{{Name: "a", Tokens: tokens("a"), Scopes: Read}, {Name: "b", Tokens: tokens("a"), Scopes: Read}}, []string{`is also the token of "a"`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := NewOperators(tt.list)
			wantProblems(t, err, tt.want)
		})
	}
}

func TestByToken(t *testing.T) {
	c := clients(t, Client{Name: "a", Tokens: tokens("old", "new")}, Client{Name: "b", Tokens: tokens("b")})
	o := operators(t, Operator{Name: "root", Tokens: tokens("root"), Scopes: Read})
	for text, want := range map[string]string{
		token("old"): "a", token("new"): "a", token("b"): "b",
		"": "", "a": "", token("b") + "-": "", token("b")[1:]: "", strings.ToUpper(token("b")): "", token("root"): "",
	} {
		got := ""
		if found := c.ByToken(text); found != nil {
			got = found.Name
		}
		if got != want {
			t.Errorf("%q proves %q, want %q", text, got, want)
		}
	}
	if o.ByToken(token("root")).Name != "root" || o.ByToken(token("b")) != nil || o.ByToken("") != nil {
		t.Error("operators are not found by their tokens")
	}
	if c.Len() != 2 || o.Len() != 1 {
		t.Error(c.Len(), o.Len())
	}
}

func TestNobody(t *testing.T) {
	var c *Clients
	var o *Operators
	if c.Len() != 0 || o.Len() != 0 || c.ByToken(token("a")) != nil || o.ByToken(token("a")) != nil || c.ByCertificate("a") != nil {
		t.Error("nobody is somebody")
	}
}

func TestByCertificate(t *testing.T) {
	c := clients(t, Client{Name: "a", Certificate: "a.example"}, Client{Name: "b", Tokens: tokens("b")})
	tests := []struct {
		names []string
		want  bool
	}{
		{nil, false},
		{[]string{""}, false},
		{[]string{"a.example"}, true},
		{[]string{"x", "", "a.example"}, true},
		{[]string{"A.example", "a.example.", "*.example", "b"}, false},
	}
	for _, tt := range tests {
		if got := c.ByCertificate(tt.names...); (got != nil) != tt.want {
			t.Errorf("%q: %v", tt.names, got)
		}
	}
}

func TestScopes(t *testing.T) {
	for _, s := range []Scope{Read, Write, Block} {
		var got Scope
		if err := got.UnmarshalText([]byte(s.String())); got != s || err != nil {
			t.Errorf("%v is read as %v, %v", s, got, err)
		}
	}
	for _, text := range []string{"", "all", "Read", "read,write"} {
		var got Scope
		if err := got.UnmarshalText([]byte(text)); got != 0 || err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
	if got := (Read | Block).String(); got != "read,block" {
		t.Error(got)
	}
	tests := []struct {
		have, need Scope
		want       bool
	}{
		{Read, Read, true},
		{Read, Write, false},
		{Read | Write, Write, true},
		{Read, Read | Write, false},
		{0, Read, false},
		{Write | Block, Read, false},
	}
	for _, tt := range tests {
		if got := tt.have.Has(tt.need); got != tt.want {
			t.Errorf("%v has %v: %v", tt.have, tt.need, got)
		}
	}
}

const canary = "canary-7d2e-0123456789abcdef0123456789"

// No print of anything here, and no error, has a token in it.
func TestTokensAreNotPrinted(t *testing.T) {
	client := Client{Name: "a", Tokens: secrets(canary)}
	operator := Operator{Name: "a", Tokens: secrets(canary), Scopes: Read}
	cs, os := clients(t, client), operators(t, operator)
	auth := &Authenticator{Clients: cs, Operators: os, Failures: &Failures{}}
	values := []any{client, &client, operator, &operator, cs, os, auth, *auth, []Client{client}, map[string]*Client{"a": &client}}

	short := canary[:31]
	for _, list := range [][]Client{
		{client, client},
		{{Name: "a", Tokens: secrets(short)}},
		{{Name: "a", Tokens: secrets(canary + " ")}},
		{{Name: "a", Tokens: secrets(canary + "ä")}},
		{{Name: "a", Tokens: secrets(canary, canary)}},
	} {
		_, err := NewClients(list)
		if err == nil {
			t.Fatal("it is right")
		}
		values = append(values, err, errors.Unwrap(err))
	}
	_, err := NewOperators([]Operator{operator, operator})
	values = append(values, err)
	for _, shown := range []string{"Bearer " + canary, "Bearer " + canary + "x", "Basic " + canary, canary} {
		r := request("192.0.2.1:1", shown)
		c, err := auth.Client(r)
		o, err2 := auth.Operator(r, Write)
		values = append(values, c, o, err, err2)
		if err != nil {
			values = append(values, err.Error(), answer(err))
		}
		if err2 != nil {
			values = append(values, err2.Error(), answer(err2))
		}
	}
	for _, v := range values {
		for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
			if out := fmt.Sprintf(format, v); strings.Contains(out, canary[:12]) || strings.Contains(out, fmt.Sprintf("%x", canary[:12])) {
				t.Errorf("%s of a %T has the token: %s", format, v, out)
			}
		}
	}
}
