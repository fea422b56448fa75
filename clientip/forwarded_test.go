package clientip

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestParseNode(t *testing.T) {
	tests := []struct {
		node, want string // "" is none
	}{
		{"192.0.2.1", "192.0.2.1"},
		{" 192.0.2.1\t", "192.0.2.1"},
		{"192.0.2.1:80", "192.0.2.1"},
		{"192.0.2.1:_port", "192.0.2.1"},
		{"2001:db8::1", "2001:db8::1"},
		{"[2001:db8::1]", "2001:db8::1"},
		{"[2001:db8::1]:65535", "2001:db8::1"},
		{"[2001:db8::1]:_p.q-r", "2001:db8::1"},
		{"[::ffff:192.0.2.1]:80", "192.0.2.1"},
		{"::ffff:192.0.2.1", "192.0.2.1"},
		{"fe80::1%eth0", "fe80::1"},
		{"[fe80::1%eth0]:80", "fe80::1"},
		{"", ""},
		{"unknown", ""},
		{"_hidden", ""},
		{"unknown:80", ""},
		{"localhost", ""},
		{"192.0.2.1:", ""},
		{"192.0.2.1:123456", ""},
		{"192.0.2.1:8x", ""},
		{"192.0.2.1:_", ""},
		{"192.0.2.1:-1", ""},
		{"192.0.2.256", ""},
		{"192.0.2.01", ""},
		{"192.0.2", ""},
		{"3221225985", ""},
		{"192.0.2.1%eth0", ""},
		{"192.0.2.0/24", ""},
		{"[192.0.2.1]", ""},
		{"[2001:db8::1", ""},
		{"2001:db8::1]", ""},
		{"[2001:db8::1]80", ""},
		{"[2001:db8::1]]", ""},
		{"[[2001:db8::1]]", ""},
		{`"192.0.2.1"`, ""},
		{"192.0.2.1 192.0.2.2", ""},
		{"192.0.2.1\x00", ""},
		{"192.0.2.1\r\n", ""},
	}
	for _, tt := range tests {
		addr, ok := parseNode(tt.node)
		if ok != (tt.want != "") || ok && addr.String() != tt.want {
			t.Errorf("%q: got %v, %v, want %q", tt.node, addr, ok, tt.want)
		}
	}
}

func TestParseElement(t *testing.T) {
	tests := []struct {
		element, want string // "" is none
	}{
		{"for=192.0.2.1", "192.0.2.1"},
		{"FOR=192.0.2.1", "192.0.2.1"},
		{` for="192.0.2.1:80" `, "192.0.2.1"},
		{`for="[2001:db8::1]"`, "2001:db8::1"},
		{`for=[2001:db8::1]:80`, "2001:db8::1"}, // wrong, but many write it
		{`for="\1\92.0.2.1"`, "192.0.2.1"},
		{`proto=https;for=192.0.2.1;by=_gw`, "192.0.2.1"},
		{`proto=https ; for=192.0.2.1 ; by=_gw`, "192.0.2.1"},
		{`;;for=192.0.2.1;;`, "192.0.2.1"},
		{`host="a;for=198.51.100.1";for=192.0.2.1`, "192.0.2.1"},
		{`host="a\";for=198.51.100.1";for=192.0.2.1`, "192.0.2.1"},
		{"", ""},
		{";", ""},
		{"by=192.0.2.1", ""},
		{"for", ""},
		{"for=", ""},
		{`for=""`, ""},
		{"for=unknown", ""},
		{`for="_hidden:80"`, ""},
		{"for=192.0.2.1;for=192.0.2.1", ""},
		{"for=192.0.2.1;x", ""},
		{"=1;for=192.0.2.1", ""},
		{"a b=1;for=192.0.2.1", ""},
		{`for="192.0.2.1`, ""},
		{`for="192.0.2.1\`, ""},
		{`for="192.0.2.1"x`, ""},
		{`for="192.0.2.1"x=1`, ""},
		{`for=192.0.2.1"`, ""},
		{`for=192.0.2.1;host="`, ""},
		{"for =192.0.2.1", ""},
		{"192.0.2.1", ""},
	}
	for _, tt := range tests {
		addr, ok := parseElement(tt.element)
		if ok != (tt.want != "") || ok && addr.String() != tt.want {
			t.Errorf("%q: got %v, %v, want %q", tt.element, addr, ok, tt.want)
		}
	}
}

func TestCutElement(t *testing.T) {
	tests := []struct {
		list string
		want []string // from the right
	}{
		{"", []string{""}},
		{"a", []string{"a"}},
		{"a,b", []string{"b", "a"}},
		{",", []string{"", ""}},
		{`a="1,2",b`, []string{"b", `a="1,2"`}},
		{`a,b="1,2"`, []string{`b="1,2"`, "a"}},
		{`a,b="\",\\"`, []string{`b="\",\\"`, "a"}},
		{`a,b="\\",c`, []string{"c", `b="\\"`, "a"}},
		{`a="open,b`, []string{"b", `a="open`}},
		{`a="open,b="1,2"`, []string{`b="1,2"`, `a="open`}},
	}
	for _, tt := range tests {
		var got []string
		for list, more := tt.list, true; more; {
			var last string
			list, last, more = cutElement(list)
			got = append(got, last)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%q: got %q, want %q", tt.list, got, tt.want)
		}
	}
}

// FuzzClient gives any header from any peer to resolvers of all headers. What comes out
// is an address in its one form, strangers get their own, and what a client sends
// changes nothing once a proxy has appended to it.
func FuzzClient(f *testing.F) {
	f.Add("10.0.0.1:1", "198.51.100.1, 192.0.2.7, 10.0.0.2", "")
	f.Add("@", `for="[2001:db8::1%25eth0]:80";by=_x`, `for="open`)
	f.Add("203.0.113.9:1", "unknown", "::ffff:10.0.0.1")
	f.Fuzz(func(t *testing.T, remote, first, second string) {
		for header, truth := range map[string]string{"x-forwarded-for": "192.0.2.7", "forwarded": `for="192.0.2.7:80"`, "x-real-ip": "192.0.2.7"} {
			r := behind(t, header)
			h := http.Header{}
			h.Add(header, first)
			h.Add(header, second)
			addr, ok := r.Client(remote, h)
			checkForm(t, addr, ok)
			if peer, has := r.Peer(remote); has && !r.Trusts(peer) && addr != peer {
				t.Errorf("%s: an untrusted peer at %v is %v", header, peer, addr)
			}
			h.Set(header, first+","+second+","+truth)
			if addr, _ := r.Client("10.0.0.1:1", h); addr != netip.MustParseAddr("192.0.2.7") {
				t.Errorf("%s: %q, %q: forged %v", header, first, second, addr)
			}
		}
	})
}

func checkForm(t *testing.T, addr netip.Addr, ok bool) {
	t.Helper()
	if ok != addr.IsValid() || addr.Zone() != "" || addr.Is4In6() {
		t.Errorf("got %#v, %v", addr, ok)
	}
	key := resolver(t, Config{}).Key(addr)
	if strings.Trim(key, "0123456789abcdef.:/") != "" || (key == "") == ok {
		t.Errorf("the key of %v is %q", addr, key)
	}
}
