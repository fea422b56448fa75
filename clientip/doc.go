// Package clientip finds out which address a request came from, behind proxies too, and makes
// a limiter's key of it.
//
//	r, err := clientip.New(clientip.Config{
//		Header:  "x-forwarded-for",
//		Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
//	})
//	addr, ok := r.Client(req.RemoteAddr, req.Header)
//	key := r.Key(addr) // "192.0.2.7" or "2001:db8:1:2::/64"
//
// Most HTTP services need only weirhttp.ClientIP, which uses this package.
//
// # Whom to believe
//
// By default it is the peer of the connection, which nobody can choose freely.
// Behind a proxy that is always the proxy, and the client's address is in a header.
// But everybody can send that header, so one is read only if Config names it, and
// only from peers that Config trusts.
//
// A proxy appends the address that it saw to what it received. So the right end of
// the list is what the nearest proxy wrote, and each entry is as good as the machine
// that wrote it: the one whose address is the next entry to the right. [Resolver.Client]
// therefore walks from right to left, over the trusted ones, and takes the first
// address that is not. What is left of it was written by that client, who may write
// anything. For example, with 10.0.0.0/8 trusted:
//
//	peer 10.0.0.1   X-Forwarded-For: 198.51.100.1, 192.0.2.7, 10.0.0.2
//	                                 forged        client     proxy
//
// # When an entry is no address
//
// The walk ends there, with the last address that was good, in the worst case the
// proxy's own. Nothing further left is believed, because nobody knows who wrote it.
// Entries that hide the address ("unknown" and "_name" of RFC 7239), empty ones and
// ones that are misspelt are all the same in this. If all entries are trusted, the
// leftmost one is the client.
//
// # Keys
//
// IPv4 addresses are their own keys. Who has an IPv6 address usually has 2^64 of them,
// so the key is the network: Config.IPv6Prefix bits, 64 by default. Larger sites have
// a /56 or /48 of their own and with it 256 or 65,536 keys. IPv4 addresses written as IPv6
// (::ffff:192.0.2.1) become IPv4, and zones (fe80::1%eth0) are left out, so that one
// address is one key.
//
// Addresses that carry an IPv4 address otherwise are not taken apart: whoever comes
// through a NAT64 (64:ff9b::/96) shares one key with all who do, unless the prefix is 128,
// and each host of 6to4 (2002::/16) has a network, and so a key, of its own.
//
// # Limits
//
// Trust is by address, so whoever can send from a trusted one can claim to be
// anybody. Keep trusted networks as narrow as the proxies are.
package clientip
