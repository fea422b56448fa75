package envoyapi

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/fielderr"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/server/internal/call"
)

func wantFailure(t *testing.T, err error, code codes.Code, part string) {
	t.Helper()
	if bad, ok := errors.AsType[*call.Error](err); ok { // as grpcapi converts it
		err = status.Error(codes.Code(bad.Code()), bad.Text())
	}
	if got := status.Convert(err); got.Code() != code || !strings.Contains(got.Message(), part) {
		t.Errorf("error %v, want %v with %q", err, code, part)
	}
}

func TestRefusedRequests(t *testing.T) {
	w := newWorld(t, Domain{Name: "d", Descriptors: []Descriptor{{Key: "k", Limit: perMinute(5)}}})
	zero := newDescriptor("k=1")
	zero.Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5, Unit: typev3.RateLimitUnit_MINUTE, UnitMultiplier: wrapperspb.UInt32(0)}
	unknown := newDescriptor("k=1")
	unknown.Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5}
	long := newDescriptor("k=1")
	long.Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5, Unit: typev3.RateLimitUnit_YEAR, UnitMultiplier: wrapperspb.UInt32(41)}
	negative := newDescriptor("k=1")
	negative.IsNegativeHits = true
	for _, tt := range []struct {
		request *rlsv3.RateLimitRequest
		part    string
	}{
		{&rlsv3.RateLimitRequest{Descriptors: []*rlcommon.RateLimitDescriptor{newDescriptor("k=1")}}, "the domain is empty"},
		{request(), "there are no descriptors"},
		{request(make([]*rlcommon.RateLimitDescriptor, 257)...), "may have 256 descriptors"},
		{request(newDescriptor("k=1"), newDescriptor("=1")), "descriptors[1]: an entry has no key"},
		{request(zero), "unit_multiplier must be at least 1"},
		{request(unknown), "unknown unit 0"},
		{request(long), "40 years"},
		{request(negative), "is_negative_hits"},
	} {
		_, err := w.ask(tt.request)
		wantFailure(t, err, codes.InvalidArgument, tt.part)
	}
	w.want(t, request(newDescriptor("k=1")), "OK: OK", 4) // nothing was charged
	w.client = &identity.Client{Name: "bob", Grants: identity.Grants{Policies: []string{"api"}}}
	_, err := w.ask(request(newDescriptor("k=1")))
	wantFailure(t, err, codes.PermissionDenied, "may not use the domain \"d\"")
}

// tree has a rule of each kind.
func tree() Domain {
	return Domain{Name: "d", Descriptors: []Descriptor{
		{Key: "any", Limit: &Limit{Unit: Minute, RequestsPerUnit: 3, Name: "per value"}},
		{Key: "any", Value: "vip", Limit: perMinute(7)},
		{Key: "any", Value: "10.0.*", Limit: perMinute(4)},
		{Key: "any", Value: "10.*", Limit: perMinute(5)},
		{Key: "any", Value: "none"},
		{Key: "free", Limit: &Limit{Unlimited: true}},
		{Key: "shut", Limit: perMinute(0)},
		{Key: "top", Limit: perMinute(9), Descriptors: []Descriptor{{Key: "deep", Limit: perMinute(2)}}},
		{Key: "try", ShadowMode: true, Limit: perMinute(1)},
		{Key: "one", QuotaMode: true, Limit: perMinute(1)},
		{Key: "two", QuotaMode: true, Limit: perMinute(2)},
		{Key: "long", Limit: &Limit{Unit: Second, UnitMultiplier: 30, RequestsPerUnit: 6}},
		{Key: "all", Limit: &Limit{Unit: Minute, RequestsPerUnit: 1, Name: "all"}},
		{Key: "staff", Limit: &Limit{Unit: Minute, RequestsPerUnit: 8, Replaces: []string{"all"}}},
	}}
}

// TestMatching: which limit is for which descriptor, and that each value has its own count.
func TestMatching(t *testing.T) {
	w := newWorld(t, tree())
	for _, tt := range []struct {
		entries string
		limit   uint32 // 0 for none
	}{
		{"any=x", 3},
		{"any=y", 3},
		{"any=", 3},
		{"any=vip", 7},
		{"any=10.0.0.1", 4},
		{"any=10.1.0.1", 5},
		{"any=none", 0},
		{"top=x", 9},
		{"top=x deep=y", 2},
		{"top=x deep=y more=z", 0},
		{"top=x other=y", 0},
		{"deep=y", 0},
		{"deep=y top=x", 0},
		{"any=x deep=y", 0},
		{"unlisted=x", 0},
	} {
		got := w.want(t, request(newDescriptor(strings.Fields(tt.entries)...)), "OK: OK", max(tt.limit, 1)-1)
		if limit := got.Statuses[0].CurrentLimit; limit.GetRequestsPerUnit() != tt.limit || (limit == nil) != (tt.limit == 0) {
			t.Errorf("%s: %v, want %d", tt.entries, limit, tt.limit)
		}
	}
	other := request(newDescriptor("any=x"))
	other.Domain = "unlisted"
	w.want(t, other, "OK: OK", 0)
	w.want(t, request(newDescriptor()), "OK: OK", 0)
}

func TestStatus(t *testing.T) {
	d := tree()
	d.Headers = true
	w := newWorld(t, d)
	got, err := w.ask(request(newDescriptor("any=x"), newDescriptor("free=x"), newDescriptor("unlisted=x"), newDescriptor("long=x")))
	must(t, err)
	want := &rlsv3.RateLimitResponse{
		OverallCode: rlsv3.RateLimitResponse_OK,
		Statuses: []*rlsv3.RateLimitResponse_DescriptorStatus{
			{
				Code: rlsv3.RateLimitResponse_OK, LimitRemaining: 2, DurationUntilReset: durationpb.New(20 * time.Second),
				CurrentLimit: &rlsv3.RateLimitResponse_RateLimit{Name: "per value", RequestsPerUnit: 3, Unit: rlsv3.RateLimitResponse_RateLimit_MINUTE},
			},
			{Code: rlsv3.RateLimitResponse_OK, LimitRemaining: math.MaxUint32},
			{Code: rlsv3.RateLimitResponse_OK},
			{
				Code: rlsv3.RateLimitResponse_OK, LimitRemaining: 5, DurationUntilReset: durationpb.New(20 * time.Second),
				CurrentLimit: &rlsv3.RateLimitResponse_RateLimit{RequestsPerUnit: 6, Unit: rlsv3.RateLimitResponse_RateLimit_SECOND, UnitMultiplier: wrapperspb.UInt32(30)},
			},
		},
		ResponseHeadersToAdd: got.ResponseHeadersToAdd,
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	text := ""
	for _, h := range got.ResponseHeadersToAdd {
		text += h.Key + "=" + h.Value + " "
	}
	if text != "RateLimit-Limit=3 RateLimit-Remaining=2 RateLimit-Reset=20 " {
		t.Error(text)
	}
	looked := w.want(t, request(hits(0, newDescriptor("any=fresh"))), "OK: OK", 3)
	if d := looked.Statuses[0].DurationUntilReset.AsDuration(); d != 20*time.Second {
		t.Errorf("a window that nobody used ends in %v", d)
	}
}

func TestHits(t *testing.T) {
	w := newWorld(t, tree())
	several := request(newDescriptor("any=x"), hits(2, newDescriptor("any=vip")), hits(0, newDescriptor("long=x")))
	several.HitsAddend = 3
	w.want(t, several, "OK: OK,OK,OK", 0, 5, 6)
	w.want(t, request(newDescriptor("any=x")), "OVER_LIMIT: OVER_LIMIT", 0)
	w.want(t, request(hits(0, newDescriptor("any=x"))), "OK: OK", 0) // who only looks is not over
	w.want(t, request(hits(math.MaxUint64, newDescriptor("any=y"))), "OVER_LIMIT: OVER_LIMIT", 3)
	w.want(t, request(newDescriptor("shut=x")), "OVER_LIMIT: OVER_LIMIT", 0)
	w.want(t, request(hits(0, newDescriptor("shut=x"))), "OK: OK", 0)
	w.now = w.now.Add(20 * time.Second)
	w.want(t, request(newDescriptor("any=x")), "OK: OK", 2)
}

func TestAllOrNothing(t *testing.T) {
	w := newWorld(t, tree())
	w.want(t, request(newDescriptor("top=x"), newDescriptor("top=x", "deep=y")), "OK: OK,OK", 8, 1)
	w.want(t, request(newDescriptor("top=x"), hits(2, newDescriptor("top=x", "deep=y"))), "OVER_LIMIT: OK,OVER_LIMIT", 8, 1)
	w.want(t, request(newDescriptor("top=x"), newDescriptor("shut=y")), "OVER_LIMIT: OK,OVER_LIMIT", 8)
	w.want(t, request(newDescriptor("top=x")), "OK: OK", 7)
}

func TestCompat(t *testing.T) {
	d := tree()
	d.Compat = true
	w := newWorld(t, d)
	w.want(t, request(newDescriptor("top=x"), hits(2, newDescriptor("top=x", "deep=y"))), "OK: OK,OK", 8, 0)
	w.want(t, request(newDescriptor("top=x"), hits(1, newDescriptor("top=x", "deep=y"))), "OVER_LIMIT: OK,OVER_LIMIT", 7, 0)
	w.want(t, request(newDescriptor("top=x")), "OK: OK", 6)
	w.want(t, request(hits(0, newDescriptor("top=x", "deep=y"))), "OVER_LIMIT: OVER_LIMIT", 0)
	w.want(t, request(newDescriptor("shut=x")), "OVER_LIMIT: OVER_LIMIT", 0)
	w.want(t, request(hits(0, newDescriptor("shut=y"))), "OK: OK", 0)
}

func TestShadow(t *testing.T) {
	w := newWorld(t, tree())
	w.want(t, request(newDescriptor("try=x")), "OK: OK", 0)
	w.want(t, request(newDescriptor("try=x"), newDescriptor("any=x")), "OK: OK,OK", 0, 2)
	d := tree()
	d.ShadowMode = true
	w = newWorld(t, d)
	w.want(t, request(newDescriptor("shut=x"), newDescriptor("any=x")), "OK: OVER_LIMIT,OK", 0, 3)
}

func TestQuotaMode(t *testing.T) {
	w := newWorld(t, tree())
	both := request(newDescriptor("one=x"), newDescriptor("two=x"))
	w.want(t, both, "OK: OK,OK", 0, 1)
	w.want(t, both, "OK: OVER_LIMIT,OK", 0, 0)
	w.want(t, both, "OVER_LIMIT: OVER_LIMIT,OVER_LIMIT", 0, 0)
	w.want(t, request(newDescriptor("one=x"), newDescriptor("any=x")), "OVER_LIMIT: OVER_LIMIT,OK", 0, 3)
	w.want(t, request(newDescriptor("one=y"), newDescriptor("shut=x")), "OVER_LIMIT: OK,OVER_LIMIT")
	w.want(t, request(newDescriptor("one=y")), "OK: OK", 0) // it was not charged before
}

// A counter that is in a request twice is charged for both. A quota that has room for one of
// them is not exceeded, so the request is admitted.
func TestTwice(t *testing.T) {
	twice := func(n uint64, entry string) *rlsv3.RateLimitRequest {
		return request(hits(n, newDescriptor(entry)), hits(n, newDescriptor(entry)))
	}
	w := newWorld(t, tree())
	w.want(t, twice(1, "any=x"), "OK: OK,OK", 2, 1)
	w.want(t, twice(1, "any=x"), "OVER_LIMIT: OK,OVER_LIMIT", 1, 0)
	w.want(t, request(newDescriptor("any=x")), "OK: OK", 0) // nothing was charged before
	w.want(t, twice(1, "one=x"), "OK: OK,OVER_LIMIT", 0, 0)
	w.want(t, twice(1, "one=x"), "OVER_LIMIT: OVER_LIMIT,OVER_LIMIT", 0, 0)
	w.want(t, request(newDescriptor("two=x"), newDescriptor("two=x"), newDescriptor("two=x")), "OK: OK,OK,OVER_LIMIT", 1, 0, 0)
	w.want(t, twice(1, "try=x"), "OK: OK,OK", 0, 0)
}

// busy is a limiter where others take all of a quota between a look at it and its charge.
type busy struct {
	weir.Limiter
	others []weir.Charge
}

func (b *busy) Do(ctx context.Context, batch *weir.Batch) error {
	if batch.Op == weir.TakeAll && len(b.others) > 0 {
		c := b.others[0]
		b.others = b.others[1:]
		if _, err := b.Take(ctx, c.Policy, c.Key, c.Cost); err != nil {
			return err
		}
	}
	return b.Limiter.Do(ctx, batch)
}

// Quotas that others were faster to take are exceeded, and the rest decides.
func TestQuotaModeUnderLoad(t *testing.T) {
	all := request(newDescriptor("one=x"), newDescriptor("two=x"), newDescriptor("any=x"))
	w := newWorld(t, tree())
	one := weir.Charge{Policy: w.rules.policies["envoy/d/one"], Key: "3:one1:x", Cost: 1}
	two := weir.Charge{Policy: w.rules.policies["envoy/d/two"], Key: "3:two1:x", Cost: 2}
	w.limiter = &busy{w.limiter, []weir.Charge{one}}
	w.want(t, all, "OK: OVER_LIMIT,OK,OK", 0, 1, 2)
	w = newWorld(t, tree())
	w.limiter = &busy{w.limiter, []weir.Charge{one, two}}
	w.want(t, all, "OVER_LIMIT: OVER_LIMIT,OVER_LIMIT,OK", 0, 0, 3)
}

func TestReplaces(t *testing.T) {
	w := newWorld(t, tree())
	w.want(t, request(newDescriptor("all=x")), "OK: OK", 0)
	w.want(t, request(newDescriptor("all=x")), "OVER_LIMIT: OVER_LIMIT", 0)
	got := w.want(t, request(newDescriptor("all=x"), newDescriptor("staff=x")), "OK: OK,OK", 0, 7)
	if got.Statuses[0].CurrentLimit != nil {
		t.Error("a limit that is replaced is reported")
	}
}

// A limit that comes with the request is counted with the configured one.
func TestOverride(t *testing.T) {
	w := newWorld(t, tree())
	brought := func(n uint32, unit typev3.RateLimitUnit, d *rlcommon.RateLimitDescriptor) *rlcommon.RateLimitDescriptor {
		d.Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: n, Unit: unit}
		return d
	}
	w.want(t, request(newDescriptor("any=x")), "OK: OK", 2)
	w.want(t, request(brought(10, typev3.RateLimitUnit_MINUTE, newDescriptor("any=x"))), "OK: OK", 8)
	w.want(t, request(brought(10, typev3.RateLimitUnit_HOUR, newDescriptor("any=x"))), "OK: OK", 9)
	w.want(t, request(newDescriptor("any=x")), "OK: OK", 0)
	w.want(t, request(brought(0, typev3.RateLimitUnit_MINUTE, newDescriptor("any=x"))), "OVER_LIMIT: OVER_LIMIT", 0)
	w.want(t, request(brought(2, typev3.RateLimitUnit_MINUTE, newDescriptor("unlisted=x"))), "OK: OK", 1)
	got := w.want(t, request(brought(2, typev3.RateLimitUnit_MINUTE, newDescriptor("unlisted=x"))), "OK: OK", 0)
	if got.Statuses[0].CurrentLimit.RequestsPerUnit != 2 {
		t.Error(got)
	}
	for n := range uint32(3 * maxOverrides) {
		w.want(t, request(brought(n+1, typev3.RateLimitUnit_DAY, newDescriptor("many=x"))), "OK: OK")
	}
	if n := len(w.service.overrides.list); n > maxOverrides {
		t.Errorf("%d limits are remembered", n)
	}
}

func TestNegativeHits(t *testing.T) {
	for _, compat := range []bool{false, true} {
		d := tree()
		d.NegativeHits, d.Compat = true, compat
		w := newWorld(t, d)
		back := func(n uint64) *rlcommon.RateLimitDescriptor {
			d := hits(n, newDescriptor("any=x"))
			d.IsNegativeHits = true
			return d
		}
		w.want(t, request(hits(3, newDescriptor("any=x"))), "OK: OK", 0)
		w.want(t, request(back(2)), "OK: OK", 2)
		w.want(t, request(newDescriptor("any=x")), "OK: OK", 1)
		w.want(t, request(back(100)), "OK: OK", 3) // never more than the limit
		w.want(t, request(hits(3, newDescriptor("any=x"))), "OK: OK", 0)
		w.want(t, request(hits(7, newDescriptor("any=x"))), "OVER_LIMIT: OVER_LIMIT", 0)
		left := uint32(2)
		if compat { // of those that were refused one counts, and the rest is forgotten
			left = 1
		}
		w.want(t, request(back(2)), "OK: OK", left)
	}
}

// Counters survive a change of limits, also while a rule is removed.
func TestSetKeepsCounts(t *testing.T) {
	w := newWorld(t, tree())
	w.want(t, request(hits(3, newDescriptor("any=x"))), "OK: OK", 0)
	old := w.rules
	changed := tree()
	changed.Descriptors[0].Limit.RequestsPerUnit = 10
	w.set(t, changed)
	if w.rules.policies["envoy/d/any:vip"] != old.policies["envoy/d/any:vip"] {
		t.Error("a policy that did not change was made again")
	}
	w.want(t, request(newDescriptor("any=x")), "OK: OK", 6)
	w.set(t)
	w.want(t, request(newDescriptor("any=x")), "OK: OK", 0)
	changed.Descriptors[0].Limit.RequestsPerUnit = 5
	w.set(t, changed)
	w.want(t, request(newDescriptor("any=x")), "OK: OK", 0)
}

// forgetful is a limiter that sets numbers, once without saying so.
type forgetful struct {
	weir.Limiter
	asked int
}

func (f *forgetful) Set(ctx context.Context, old, new *weir.Policy) error {
	f.asked++
	if err := f.Limiter.Set(ctx, old, new); err != nil || f.asked > 1 {
		return err
	}
	return weir.ErrUnknown
}

// If it is not known whether numbers were set, they are set back.
func TestSetUnknown(t *testing.T) {
	w := newWorld(t, tree())
	w.want(t, request(newDescriptor("any=x")), "OK: OK", 2)
	w.limiter = &forgetful{Limiter: w.limiter}
	changed := tree()
	changed.Descriptors[0].Limit.RequestsPerUnit = 10
	rules, err := Compile([]Domain{changed}, w.rules)
	must(t, err)
	if err := w.service.core.Engine.Apply(context.Background(), rules.Policies()...); !errors.Is(err, weir.ErrUnknown) {
		t.Fatal(err)
	}
	w.want(t, request(newDescriptor("any=x")), "OK: OK", 1)
	w.set(t, changed)
	w.want(t, request(newDescriptor("any=x")), "OK: OK", 7)
}

// failing is a limiter that cannot decide.
type failing struct {
	weir.Limiter
	reason weir.Reason
	err    error
}

func (f failing) Take(context.Context, *weir.Policy, string, int64) (weir.Decision, error) {
	return weir.Decision{Reason: f.reason}, f.err
}

func TestStoreDown(t *testing.T) {
	w := newWorld(t, tree())
	w.limiter = failing{err: errors.New("the secret")}
	_, err := w.ask(request(newDescriptor("any=x")))
	wantFailure(t, err, codes.Unavailable, "no decision could be made")
	if strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
	w.limiter = failing{reason: weir.StoreDown}
	_, err = w.ask(request(newDescriptor("any=x")))
	wantFailure(t, err, codes.Unavailable, "no decision could be made")
	if len(w.records) > 0 {
		t.Error("what was not decided was observed")
	}
}

func TestObserved(t *testing.T) {
	w := newWorld(t, tree())
	w.client = &identity.Client{Name: "edge"}
	w.want(t, request(newDescriptor("any=x")), "OK: OK")
	w.want(t, request(newDescriptor("any=x"), hits(8, newDescriptor("any=vip"))), "OVER_LIMIT: OK,OVER_LIMIT")
	w.want(t, request(hits(2, newDescriptor("try=x")), newDescriptor("any=y")), "OK: OK,OK") // in shadow
	w.want(t, request(hits(2, newDescriptor("try=x")), newDescriptor("shut=x")), "OVER_LIMIT: OK,OVER_LIMIT")
	w.want(t, request(hits(2, newDescriptor("one=x")), newDescriptor("two=x")), "OK: OVER_LIMIT,OK") // one quota has room
	d := tree()
	d.ShadowMode = true
	w.set(t, d)
	w.want(t, request(newDescriptor("any=x")), "OK: OK")
	w.want(t, request(hits(8, newDescriptor("any=vip"))), "OK: OVER_LIMIT")
	for i, want := range []struct {
		allowed bool
		reason  weir.Reason
		key     string
		cost    int64
		shadow  int
		by      string
		retry   time.Duration
	}{
		{true, weir.Admitted, "", 1, -1, "", 0},
		{false, weir.Exhausted, "3:any3:vip", 8, -1, "envoy/d/any:vip", 20 * time.Second},
		{true, weir.Admitted, "3:try1:x", 2, 0, "", 0},
		{false, weir.Exhausted, "", 1, -1, "envoy.d", weir.Never},
		{true, weir.Admitted, "", 1, -1, "", 0},
		{true, weir.Admitted, "", 1, -1, "", 0},
		{true, weir.Admitted, "3:any3:vip", 8, 0, "", 0},
	} {
		r := w.records[i]
		if r.Policy() != "envoy.d" || r.Client != "edge" || r.LimitedBy() != want.by || r.RetryAfter != want.retry {
			t.Errorf("record %d: %+v", i, r)
		}
		if r.Allowed != want.allowed || r.Reason != want.reason || r.Key != want.key || r.Cost != want.cost || r.Shadow != want.shadow {
			t.Errorf("record %d: %+v, want %+v", i, r, want)
		}
	}
}

// estimating decides without the store.
type estimating struct{ weir.Limiter }

func (l estimating) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	d, err := l.Limiter.Take(ctx, p, key, cost)
	d.Estimate = true
	return d, err
}

// Observers are told which decisions were made without the store.
func TestObservedEstimate(t *testing.T) {
	w := newWorld(t, tree())
	w.want(t, request(newDescriptor("any=x")), "OK: OK")
	w.limiter = estimating{w.limiter}
	w.want(t, request(newDescriptor("any=x")), "OK: OK")
	if w.records[0].Estimate || !w.records[1].Estimate {
		t.Errorf("%+v", w.records)
	}
}

func TestNames(t *testing.T) {
	for _, tt := range []struct{ path, want string }{
		{"d k v", "envoy/d/k:v"},
		{"d k ", "envoy/d/k"},
		{"d k v l w", "envoy/d/k:v/l:w"},
	} {
		if got := policyName(strings.Split(tt.path, " ")); got != tt.want {
			t.Errorf("%q is %q, want %q", tt.path, got, tt.want)
		}
	}
	seen := map[string]bool{}
	for _, path := range [][]string{{"d", "k", "a*"}, {"d", "k", "a_"}, {"d", "k", "ü"}, {"d", "k", "/"}, {"d/k", "v", ""}, {"d", strings.Repeat("k", 200), ""}, {"d", strings.Repeat("k", 201), ""}} {
		name := policyName(path)
		if _, err := weir.NewPolicy(name, weir.Limit{Rate: 1, Per: weir.Every(time.Second)}); err != nil || seen[name] {
			t.Errorf("%q is %q, seen %v, error %v", path, name, seen[name], err)
		}
		seen[name] = true
	}
}

func TestCompileTellsEveryProblem(t *testing.T) {
	_, err := Compile([]Domain{
		{Name: "d", Descriptors: []Descriptor{{Key: ""}, {Key: "k"}, {Key: "k"}, {Key: "l", Limit: &Limit{RequestsPerUnit: 1}}, {Key: "m", Limit: &Limit{Unit: Year, UnitMultiplier: 41, RequestsPerUnit: 1}}}},
		{Name: "d"},
		{},
	}, nil)
	var got []string
	for _, e := range fielderr.Split(err) {
		got = append(got, e.Error())
	}
	want := []string{
		"envoy: [0].Descriptors[0].Key: a descriptor needs a key, such as remote_address",
		"envoy: [0].Descriptors[2]: is for the same key and value as descriptors[1] beside it: only one can count",
		"envoy: [0].Descriptors[3].Limit.Unit: is missing: add second, minute, hour, day, week, month or year",
		"envoy: [0].Descriptors[4].Limit.UnitMultiplier: 41 years are too long: a period has at most 40 years",
		`envoy: [1].Name: "d" is there twice: put the descriptors of both together`,
		"envoy: [2].Name: a domain needs the name that Envoy sends",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
