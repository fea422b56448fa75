package server

import (
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/adminapi"
)

// putAlice sets an override of the key alice, and returns the status.
func putAlice(t *testing.T, srv *running) int {
	t.Helper()
	req, err := http.NewRequest(http.MethodPut, srv.url+"/admin/v1/keys/override",
		strings.NewReader(`{"policy":"api","key":"alice","limits":[{"rate":5,"per":"1h"}],"ttl_s":60}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := newClient(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// wantOverride fails unless an override that was answered with a status is stored and in force, or
// neither.
func wantOverride(t *testing.T, srv *running, store Overrides, status int) {
	t.Helper()
	list, err := store.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a, _ := check(t, newClient(t), srv.url, `{"policy":"api","key":"alice","cost":0}`)
	if done := status == http.StatusOK; (len(list) == 1) != done || (a.Limit == 5) != done {
		t.Errorf("the answer is %d, %d are stored, and the limit is %d", status, len(list), a.Limit)
	}
}

// An override that cannot be applied is refused, and not stored: else it would come into force
// later, on this node or another, although its operator was told that it failed. A certificate that
// cannot be read is what makes it fail here.
func TestOverrideIsAppliedOrNotStored(t *testing.T) {
	a := newAuthority(t)
	a.sign("localhost", 10)
	store := &memoryOverrides{}
	srv := run(t, Config{
		Limiter: frozenTable(t), Overrides: store, Live: Live{Policies: []ruleset.Policy{onePolicy("api", 10)}},
		GRPC: Listener{Address: "127.0.0.1:0", TLS: &TLS{CertFile: a.file("localhost.pem"), KeyFile: a.file("localhost.key")}},
	})
	if err := os.WriteFile(a.file("localhost.pem"), []byte("not a certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantOverride(t, srv, store, putAlice(t, srv))
}

// fullOverrides is a store that takes no more.
type fullOverrides struct{ memoryOverrides }

func (*fullOverrides) Put(context.Context, Override) error { return errors.New("the disk is full") }

// An override that cannot be stored is not in force either: other nodes would not have it, and a
// restart would remove it.
func TestOverrideIsStoredOrNotApplied(t *testing.T) {
	store := &fullOverrides{}
	srv := run(t, Config{Limiter: frozenTable(t), Overrides: store, Live: Live{Policies: []ruleset.Policy{onePolicy("api", 10)}}})
	status := putAlice(t, srv)
	if status != http.StatusServiceUnavailable {
		t.Errorf("answered %d", status)
	}
	wantOverride(t, srv, store, status)
}

// countingOverrides counts how often the overrides are read.
type countingOverrides struct {
	memoryOverrides
	lists atomic.Int64
}

func (c *countingOverrides) List(ctx context.Context) ([]Override, error) {
	c.lists.Add(1)
	return c.memoryOverrides.List(ctx)
}

// Setting an override does not read all others, since the time to set many of them would be
// quadratic, unless there are too many. Then those that have expired make room.
func TestOverridesAreBounded(t *testing.T) {
	store := &countingOverrides{}
	srv := run(t, Config{Limiter: frozenTable(t), Overrides: store, Live: Live{Policies: []ruleset.Policy{onePolicy("api", 10)}}})
	put := func(key string, until time.Time) error {
		return srv.putOverride(t.Context(), Override{Policy: "api", Override: ruleset.Override{Key: key, Limits: onePolicy("api", 5).Limits, Until: until}})
	}
	before := store.lists.Load()
	for i := range 3 {
		if err := put(strconv.Itoa(i), time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := store.lists.Load() - before; n > 0 {
		t.Errorf("3 overrides were set, and all were read %d times", n)
	}
	past, unending := time.Now().Add(-time.Second), time.Time{}
	fill := func(until time.Time) { // as if they had been set
		store.mu.Lock()
		store.list = nil
		for i := range maxOverrides {
			o := Override{Policy: "api", Override: ruleset.Override{Key: "old" + strconv.Itoa(i), Limits: onePolicy("api", 5).Limits, Until: until}}
			store.list = append(store.list, o)
		}
		srv.changing.Lock()
		srv.known = slices.Clone(store.list)
		srv.changing.Unlock()
		store.mu.Unlock()
	}
	fill(past)
	if err := put("new", unending); err != nil || len(srv.known) != 1 {
		t.Errorf("where all have expired: %v, and %d are known", err, len(srv.known))
	}
	fill(unending)
	if err := put("new", unending); !errors.Is(err, adminapi.ErrTooMany) {
		t.Errorf("one too many: %v", err)
	}
	if err := put("old7", unending); err != nil {
		t.Errorf("one that is there: %v", err)
	}
}
