package guard

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/weirlimit/weir/store/memstore"
)

// inUse returns the bytes of the heap that are in use.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestMemoryPerUser: users who use all endpoints of the sample, penalties and abuse included, take at
// most 600 bytes each: S4.23, F4.3. The short form has 5,000 users, the long one 100,000.
func TestMemoryPerUser(t *testing.T) {
	users := 5_000
	if testLong() {
		users = 100_000
	}
	before := inUse()
	table, err := memstore.New(memstore.Config{MaxKeys: users * 32})
	if err != nil {
		t.Fatal(err)
	}
	c := river()
	c.MaxSubjects = users * 2
	c.BeforeAuth.InFlight = 0
	g := guardOn(t, table, c)
	ctx := context.Background()
	var p Pass
	for i := range users {
		s := User(fmt.Sprintf("0x%040x", i))
		addr := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		for j := range c.Endpoints {
			through(t, g, &p, Request{Path: c.Endpoints[j].Pattern, Address: addr}, s)
			p.Done(ctx, false)
		}
		through(t, g, &p, Request{Path: "/another", Address: addr}, s)
		p.Done(ctx, false)
	}
	used := inUse() - before
	runtime.KeepAlive(g)
	t.Logf("%d users, %d rows: %d bytes for each user", users, table.Stats().Keys, used/int64(users))
	if each := used / int64(users); each > 600 {
		t.Errorf("%d bytes for each user, want at most 600", each)
	}
}

// TestFloodOfAddresses: the memory that a guard takes does not depend on how many addresses there are.
func TestFloodOfAddresses(t *testing.T) {
	addresses := 4_000
	if testLong() {
		addresses = 1_000_000
	}
	table, err := memstore.New(memstore.Config{MaxKeys: 2_000})
	if err != nil {
		t.Fatal(err)
	}
	c := river()
	c.MaxSubjects = 1_000
	g := guardOn(t, table, c)
	var p Pass
	flood := func() {
		for i := range addresses {
			addr := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
			for range 2 {
				through(t, g, &p, Request{Path: register, Address: addr}, Subject{})
				p.Done(context.Background(), false)
			}
		}
	}
	flood()
	after := inUse()
	flood()
	if grown := inUse() - after; grown > 4<<20 {
		t.Errorf("a second flood took %d bytes more", grown)
	}
	stats := g.Stats()
	if table.Stats().Keys > 2_000 || stats.Subjects > 1_000 {
		t.Errorf("%d rows and %d of the guard's own", table.Stats().Keys, stats.Subjects)
	}
	if n := len(g.Offenders(1 << 20)); n > offendersKept {
		t.Errorf("%d offenders", n)
	}
	if n := len(stats.Endpoints); n != len(riverLimits)+2 {
		t.Errorf("%d endpoints are counted, want those of the configuration", n)
	}
}

func BenchmarkBothStages(b *testing.B) {
	c := river()
	c.BeforeAuth.PerIP = per(1_000_000_000, time.Minute)
	c.Endpoints[0].Limits = per(1_000_000_000, time.Minute)
	c.Abuse = nil
	g := newGuard(b, c)
	ctx := context.Background()
	s := User("alice")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		var p Pass
		for pb.Next() {
			if v, err := g.Enter(ctx, &p, Request{Path: c.Endpoints[0].Pattern, Address: localAddr}); err != nil || !v.Allowed {
				b.Fatal(v, err)
			}
			if v, err := g.Identify(ctx, &p, s); err != nil || !v.Allowed {
				b.Fatal(v, err)
			}
			p.Done(ctx, false)
		}
	})
}
