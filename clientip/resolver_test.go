package clientip

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, s := range texts {
		list = append(list, netip.MustParsePrefix(s))
	}
	return list
}

func resolver(t testing.TB, c Config) *Resolver {
	t.Helper()
	r, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// behind returns a resolver that trusts 10/8 and fd00::/8 for a header.
func behind(t testing.TB, header string) *Resolver {
	t.Helper()
	return resolver(t, Config{Header: header, Trusted: prefixes("10.0.0.0/8", "fd00::/8"), TrustUnix: true})
}

func TestPeer(t *testing.T) {
	tests := []struct {
		remote, want string // "" is none
	}{
		{"192.0.2.1:4711", "192.0.2.1"},
		{"[2001:db8::1]:4711", "2001:db8::1"},
		{"[::ffff:192.0.2.1]:4711", "192.0.2.1"},
		{"[fe80::1%eth0]:4711", "fe80::1"},
		{"[::ffff:192.0.2.1%eth0]:4711", "192.0.2.1"},
		{"192.0.2.1", "192.0.2.1"},
		{"fe80::1%eth0", "fe80::1"},
		{"", ""},
		{"@", ""},
		{"@name", ""},
		{"/run/client.sock", ""},
		{"localhost:80", ""},
		{"192.0.2.1:", ""},
		{"192.0.2.1:65536", ""},
	}
	r := resolver(t, Config{})
	for _, tt := range tests {
		addr, ok := r.Peer(tt.remote)
		if ok != (tt.want != "") || ok && addr.String() != tt.want {
			t.Errorf("%q: got %v, %v, want %q", tt.remote, addr, ok, tt.want)
		}
	}
}

func TestClient(t *testing.T) {
	const proxy, untrusted = "10.0.0.1:1", "203.0.113.9:1"
	tests := []struct {
		name, header, remote string
		lines                []string
		want                 string // "" is none
	}{
		{"nothing configured", "", proxy, []string{"192.0.2.7"}, "10.0.0.1"},
		{"peer is untrusted", "x-forwarded-for", untrusted, []string{"192.0.2.7"}, "203.0.113.9"},
		{"peer is a proxy", "x-forwarded-for", proxy, []string{"192.0.2.7"}, "192.0.2.7"},
		{"proxy on ipv6", "x-forwarded-for", "[fd00::1]:1", []string{"192.0.2.7"}, "192.0.2.7"},
		{"proxy as mapped ipv4", "x-forwarded-for", "[::ffff:10.0.0.1]:1", []string{"192.0.2.7"}, "192.0.2.7"},
		{"no header", "x-forwarded-for", proxy, nil, "10.0.0.1"},
		{"empty header", "x-forwarded-for", proxy, []string{""}, "10.0.0.1"},
		{"forged on the left", "x-forwarded-for", proxy, []string{"198.51.100.1, 192.0.2.7"}, "192.0.2.7"},
		{"forged in a line before", "x-forwarded-for", proxy, []string{"198.51.100.1", "192.0.2.7"}, "192.0.2.7"},
		{"two proxies", "x-forwarded-for", proxy, []string{"198.51.100.1, 192.0.2.7, 10.0.0.2"}, "192.0.2.7"},
		{"two proxies, two lines", "x-forwarded-for", proxy, []string{"198.51.100.1,192.0.2.7", "10.0.0.2"}, "192.0.2.7"},
		{"all trusted", "x-forwarded-for", proxy, []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"forged trusted", "x-forwarded-for", proxy, []string{"10.0.0.3, 192.0.2.7"}, "192.0.2.7"},
		{"mapped proxy in the list", "x-forwarded-for", proxy, []string{"192.0.2.7, ::ffff:10.0.0.2"}, "192.0.2.7"},
		{"proxy with a zone", "x-forwarded-for", proxy, []string{"192.0.2.7, fd00::2%eth0"}, "192.0.2.7"},
		{"garbage stops", "x-forwarded-for", proxy, []string{"192.0.2.7, what, 10.0.0.2"}, "10.0.0.2"},
		{"garbage at once", "x-forwarded-for", proxy, []string{"192.0.2.7, what"}, "10.0.0.1"},
		{"empty entry stops", "x-forwarded-for", proxy, []string{"192.0.2.7, , 10.0.0.2"}, "10.0.0.2"},
		{"empty line stops", "x-forwarded-for", proxy, []string{"192.0.2.7", ""}, "10.0.0.1"},
		{"ports", "x-forwarded-for", proxy, []string{"192.0.2.7:99, 10.0.0.2:80, [fd00::2]:80"}, "192.0.2.7"},
		{"tabs", "x-forwarded-for", proxy, []string{"\t192.0.2.7\t,\t10.0.0.2\t"}, "192.0.2.7"},
		{"real ip", "x-real-ip", proxy, []string{"192.0.2.7"}, "192.0.2.7"},
		{"real ip, forged line before", "x-real-ip", proxy, []string{"198.51.100.1", "192.0.2.7"}, "192.0.2.7"},
		{"real ip of an untrusted peer", "x-real-ip", untrusted, []string{"192.0.2.7"}, "203.0.113.9"},
		{"any case", "X-Real-IP", proxy, []string{"192.0.2.7"}, "192.0.2.7"},
		{"unix", "x-forwarded-for", "@", []string{"192.0.2.7"}, "192.0.2.7"},
		{"unix without a name", "x-forwarded-for", "", []string{"192.0.2.7, 10.0.0.2"}, "192.0.2.7"},
		{"unix with a path", "x-forwarded-for", "/run/p.sock", []string{"192.0.2.7"}, "192.0.2.7"},
		{"unix, no header", "x-forwarded-for", "@", nil, ""},
		{"unix, garbage", "x-forwarded-for", "@", []string{"192.0.2.7, what"}, ""},
		{"no address at all", "x-forwarded-for", "what", []string{"192.0.2.7"}, ""},
		{"forwarded", "forwarded", proxy, []string{"for=192.0.2.7"}, "192.0.2.7"},
		{"forwarded, all of it", "forwarded", proxy, []string{`For="[2001:db8::1]:4711";proto=https;by=_gw, for=10.0.0.2:_p;host="a,b"`}, "2001:db8::1"},
		{"forwarded, lines", "forwarded", proxy, []string{"for=198.51.100.1", "for=192.0.2.7", "for=10.0.0.2"}, "192.0.2.7"},
		{"forwarded, unknown", "forwarded", proxy, []string{"for=192.0.2.7, for=unknown, for=10.0.0.2"}, "10.0.0.2"},
		{"forwarded, hidden", "forwarded", proxy, []string{"for=192.0.2.7, for=_hidden"}, "10.0.0.1"},
		{"forwarded, quote left open", "forwarded", proxy, []string{`for="198.51.100.1, for=192.0.2.7`}, "192.0.2.7"},
		{"forwarded, quote left open, quotes later", "forwarded", proxy, []string{`for="198.51.100.1;host="a, for="192.0.2.7";host="a\",b\\"`}, "192.0.2.7"},
		{"forwarded, backslash at the end of the forged", "forwarded", proxy, []string{`for="\, for="192.0.2.7"`}, "192.0.2.7"},
		{"forwarded has no plain addresses", "forwarded", proxy, []string{"192.0.2.7"}, "10.0.0.1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := resolver(t, Config{})
			if tt.header != "" {
				r = behind(t, tt.header)
			}
			h := http.Header{"X-Forwarded-For": {"198.51.100.66"}, "X-Real-Ip": {"198.51.100.66"}, "Forwarded": {"for=198.51.100.66"}}
			h.Del(tt.header)
			for _, line := range tt.lines {
				h.Add(tt.header, line)
			}
			addr, ok := r.Client(tt.remote, h)
			if ok != (tt.want != "") || ok && addr.String() != tt.want {
				t.Errorf("got %v, %v, want %q", addr, ok, tt.want)
			}
		})
	}
}

func TestUnixIsNotTrustedByDefault(t *testing.T) {
	r := resolver(t, Config{Header: "x-forwarded-for", Trusted: prefixes("10.0.0.0/8")})
	if addr, ok := r.Client("@", http.Header{"X-Forwarded-For": {"192.0.2.7"}}); ok {
		t.Errorf("got %v", addr)
	}
}

func TestTrusts(t *testing.T) {
	r := resolver(t, Config{Trusted: prefixes("10.1.2.3/8", "::ffff:192.0.2.0/120", "fe80::/10")})
	tests := []struct {
		addr string
		want bool
	}{
		{"10.255.0.1", true},
		{"11.0.0.1", false},
		{"::ffff:10.0.0.1", true},
		{"192.0.2.200", true},
		{"192.0.3.1", false},
		{"fe80::1%eth0", true},
		{"::a00:1", false}, // 10.0.0.1 in the last bits is no IPv4 address
	}
	for _, tt := range tests {
		if got := r.Trusts(netip.MustParseAddr(tt.addr)); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.addr, got, tt.want)
		}
	}
	if r.Trusts(netip.Addr{}) {
		t.Error("no address is trusted")
	}
}

func TestKey(t *testing.T) {
	tests := []struct {
		bits       int
		addr, want string
	}{
		{0, "192.0.2.1", "192.0.2.1"},
		{0, "::ffff:192.0.2.1", "192.0.2.1"},
		{0, "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"},
		{0, "fe80::1%eth0", "fe80::/64"},
		{48, "2001:db8:1:2:3:4:5:6", "2001:db8:1::/48"},
		{56, "2001:db8:1:2ff::6", "2001:db8:1:200::/56"},
		{128, "2001:db8::6", "2001:db8::6/128"},
		{48, "192.0.2.1", "192.0.2.1"},
	}
	for _, tt := range tests {
		r := resolver(t, Config{IPv6Prefix: tt.bits})
		if got := r.Key(netip.MustParseAddr(tt.addr)); got != tt.want {
			t.Errorf("%s, /%d: got %s, want %s", tt.addr, tt.bits, got, tt.want)
		}
		if got := string(r.AppendKey([]byte("ip:"), netip.MustParseAddr(tt.addr))); got != "ip:"+tt.want {
			t.Errorf("%s, /%d: appended %s, want ip:%s", tt.addr, tt.bits, got, tt.want)
		}
	}
	if got := resolver(t, Config{}).Key(netip.Addr{}); got != "" {
		t.Errorf("the key of no address is %q", got)
	}
}

func TestConfigProblems(t *testing.T) {
	tests := []struct {
		name string
		c    Config
		want []string
	}{
		{"zero", Config{}, nil},
		{"all", Config{Header: "Forwarded", Trusted: prefixes("10.0.0.0/8", "::1/128"), IPv6Prefix: 48, TrustUnix: true}, nil},
		{"unix only", Config{Header: "forwarded", TrustUnix: true}, nil},
		{"networks without a header", Config{Trusted: prefixes("10.0.0.0/8")}, nil},
		{"header", Config{Header: "via", TrustUnix: true}, []string{`clientip: header "via": must be x-forwarded-for, forwarded or x-real-ip, or left out`}},
		{"nobody to believe", Config{Header: "forwarded"}, []string{`clientip: header "forwarded": is read from trusted peers only, and there are none; name the proxies' networks`}},
		{
			"networks",
			Config{Trusted: append(prefixes("0.0.0.0/0", "::/0", "::ffff:0.0.0.0/96", "::ffff:0.0.0.0/97"), netip.Prefix{})},
			[]string{
				"clientip: trusted 0.0.0.0/0: is everybody, so that anybody could claim any address; name the proxies' networks",
				"clientip: trusted ::/0: is everybody, so that anybody could claim any address; name the proxies' networks",
				"clientip: trusted ::ffff:0.0.0.0/96: is more than all of IPv4 written as IPv6; write it as IPv4",
				"clientip: trusted invalid Prefix: is not a network such as 10.0.0.0/8",
			},
		},
		{"too wide", Config{IPv6Prefix: 47}, []string{"clientip: ipv6 prefix 47: must be between 48 and 128"}},
		{"too narrow", Config{IPv6Prefix: 129}, []string{"clientip: ipv6 prefix 129: must be between 48 and 128"}},
		{"two", Config{Header: "via", TrustUnix: true, IPv6Prefix: -1}, []string{
			`clientip: header "via": must be x-forwarded-for, forwarded or x-real-ip, or left out`,
			"clientip: ipv6 prefix -1: must be between 48 and 128",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := New(tt.c)
			if want := strings.Join(tt.want, "\n"); want != "" && (err == nil || err.Error() != want) {
				t.Errorf("got  %v\nwant %s", err, want)
			}
			if (r == nil) != (tt.want != nil) || (err == nil) != (tt.want == nil) {
				t.Errorf("got %v, %v", r, err)
			}
		})
	}
}

// TestForgedLeadingValues has a client send whatever it likes before the proxies
// append the truth: its key stays the same.
func TestForgedLeadingValues(t *testing.T) {
	const seed = 7
	rnd := rand.New(rand.NewPCG(seed, seed))
	tails := map[string]string{
		"x-forwarded-for": "2001:db8:1:2::7, 10.0.0.2",
		"forwarded":       `for="[2001:db8:1:2::7]:99";host="a,\"b", for=10.0.0.2`,
	}
	for header, tail := range tails {
		r := behind(t, header)
		for i := range 1000 {
			forged := forge(rnd)
			h := http.Header{}
			if i%2 == 0 {
				h.Add(header, forged)
				h.Add(header, tail)
			} else {
				h.Add(header, forged+", "+tail)
			}
			addr, ok := r.Client("10.0.0.1:1", h)
			if got := r.Key(addr); !ok || got != "2001:db8:1:2::/64" {
				t.Fatalf("seed %d, round %d: %s: %q: key %q, %v", seed, i, header, forged, got, ok)
			}
		}
	}
}

// forge returns a few random pieces of what a header may have, in any order.
func forge(rnd *rand.Rand) string {
	pieces := []string{"for=", `"`, `\`, ",", ";", " ", "[", "]", ":", "10.0.0.9", "fd00::1", "unknown", "_x", "by=", "\x00", "\xff", "%eth0"}
	var b strings.Builder
	for range rnd.IntN(12) {
		if rnd.IntN(4) == 0 {
			fmt.Fprintf(&b, "%d.%d.%d.%d", rnd.IntN(256), rnd.IntN(256), rnd.IntN(256), rnd.IntN(300))
			continue
		}
		b.WriteString(pieces[rnd.IntN(len(pieces))])
	}
	return b.String()
}

// TestRotationInOneNetwork lets a client use 2^16 addresses of its /64.
func TestRotationInOneNetwork(t *testing.T) {
	r := resolver(t, Config{})
	keys := map[string]bool{}
	bytes := netip.MustParseAddr("2001:db8:1:2::").As16()
	for i := range 1 << 16 {
		bytes[8], bytes[15] = byte(i>>8), byte(i) // the first and the last bits that are free
		keys[r.Key(netip.AddrFrom16(bytes))] = true
	}
	if len(keys) != 1 {
		t.Errorf("%d keys, want 1", len(keys))
	}
	bytes[7]++
	if keys[r.Key(netip.AddrFrom16(bytes))] {
		t.Error("the next network has the same key")
	}
}

func TestClientAllocates(t *testing.T) {
	tests := []struct {
		header, line string
		most         float64
	}{
		{"", "192.0.2.7", 0},
		{"x-forwarded-for", "198.51.100.1, 192.0.2.7, 10.0.0.2", 0},
		{"forwarded", `for=198.51.100.1, for=192.0.2.7;proto=https, for="[fd00::1]:80"`, 2}, // one for a value in quotes, which grows once
	}
	for _, tt := range tests {
		r := resolver(t, Config{})
		if tt.header != "" {
			r = behind(t, tt.header)
		}
		h := http.Header{}
		h.Add(tt.header, tt.line)
		if n := testing.AllocsPerRun(100, func() { r.Client("10.0.0.1:1", h) }); n > tt.most {
			t.Errorf("%q: %v allocations, want at most %v", tt.header, n, tt.most)
		}
	}
}

func TestAppendKeyAllocates(t *testing.T) {
	r := resolver(t, Config{})
	b := make([]byte, 0, 64)
	for _, text := range []string{"192.0.2.7", "2001:db8:1:2:3:4:5:6", "::ffff:192.0.2.7"} {
		addr := netip.MustParseAddr(text)
		if n := testing.AllocsPerRun(100, func() { r.AppendKey(b, addr) }); n > 0 {
			t.Errorf("%s: %v allocations", text, n)
		}
	}
}

// TestUntrustedPeer lets a peer that is no proxy send whatever it likes: its address stays its key.
func TestUntrustedPeer(t *testing.T) {
	const seed = 11
	rnd := rand.New(rand.NewPCG(seed, seed))
	for _, header := range []string{"x-forwarded-for", "forwarded", "x-real-ip"} {
		r := behind(t, header)
		for i := range 1000 {
			h := http.Header{}
			h.Add(header, forge(rnd))
			h.Add(header, fmt.Sprintf("198.51.100.%d", i%256))
			addr, _ := r.Client("203.0.113.9:4711", h)
			if got := r.Key(addr); got != "203.0.113.9" {
				t.Fatalf("seed %d, round %d: %s: %q: key %q", seed, i, header, h[http.CanonicalHeaderKey(header)], got)
			}
		}
	}
}

func BenchmarkClient(b *testing.B) {
	r := behind(b, "x-forwarded-for")
	h := http.Header{"X-Forwarded-For": {"198.51.100.1, 2001:db8::7, 10.0.0.2"}}
	var key []byte
	b.ReportAllocs()
	for b.Loop() {
		addr, _ := r.Client("10.0.0.1:4711", h)
		key = r.AppendKey(key[:0], addr)
	}
}
