package clientip_test

import (
	"fmt"
	"net/http"
	"net/netip"

	"github.com/weirlimit/weir/clientip"
)

func ExampleNew() {
	r, err := clientip.New(clientip.Config{
		Header:  "x-forwarded-for",
		Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	})
	if err != nil {
		panic(err)
	}
	h := http.Header{"X-Forwarded-For": {"198.51.100.1, 2001:db8:1:2::7, 10.0.0.2"}}
	proxied, _ := r.Client("10.0.0.1:4711", h)
	direct, _ := r.Client("203.0.113.9:4711", h)
	fmt.Println(proxied, r.Key(proxied))
	fmt.Println(direct, r.Key(direct))
	// Output:
	// 2001:db8:1:2::7 2001:db8:1:2::/64
	// 203.0.113.9 203.0.113.9
}
