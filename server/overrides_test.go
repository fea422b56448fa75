package server

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/weirlimit/weir/ruleset"
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
