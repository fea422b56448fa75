//go:build linux

package ethereum

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/gateway"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/upstream"
)

// runViem runs a part of testdata/viem.js, and reads what it prints into out.
func runViem(t *testing.T, what string, r *route, out any) {
	t.Helper()
	modules, err := filepath.Abs(packages)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	in, err := json.Marshal(map[string]string{"key": "0x" + richKey, "poor": poorAddress, "code": fmt.Sprintf("0x%x", contractCode())})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, "node", filepath.Join("testdata", "viem.js"), what, r.URL)
	var output, problems bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &output, &problems
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
	if err := cmd.Run(); err != nil {
		t.Fatalf("node: %v\n%s%s", err, &output, &problems)
	}
	if err := json.Unmarshal(output.Bytes(), out); err != nil {
		t.Fatalf("%v: %s", err, &output)
	}
}

// TestViem does with viem what programs do.
func TestViem(t *testing.T) {
	t.Parallel()
	r := serve(t, startNode(t), nil)
	type results struct {
		Chain, First, Grown, Loaded, Blocks, MoreEvents, Logs int
		Paid, Stored                                          string
		Removed                                               bool
		Events, Multicall                                     []int
		Batch                                                 []any
	}
	var got results
	runViem(t, "all", r, &got)
	want := results{
		Chain: chainID, Grown: 12345, Loaded: 42, Blocks: 1, Logs: 1, Paid: "success", Stored: "success", Removed: true,
		Events: []int{42}, Multicall: []int{42, 42, 42},
		Batch: []any{float64(chainID), true, "BlockNotFoundError", float64(42), "MethodNotFoundRpcError"},
	}
	for range 20 {
		want.Batch = append(want.Batch, true)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := len(r.calls("eth_sendRawTransaction")); n != 3 {
		t.Errorf("transactions were sent %d times, want 3", n)
	}
	if batched := slices.ContainsFunc(r.calls("eth_getBalance"), func(s sent) bool { return s.batch }); !batched {
		t.Error("no batch was sent")
	}
	r.wantPinned(t)
}

// TestViemRetries makes more calls at once than the route takes. Those refused come back when they are told to, and all
// get their answers.
func TestViemRetries(t *testing.T) {
	t.Parallel()
	var clock frozen // until a call is refused, so that some are, however slow the machine is
	r := serve(t, startNode(t), func(c *gateway.Config, store *memstore.Config) {
		c.Pool.MaxWait = -1
		c.Pool.Endpoints = c.Pool.Endpoints[:1]
		c.Pool.Endpoints[0].Limits = upstream.Rate{PerSecond: 2}.Limits()
		store.Now = clock.now
	})
	r.refused = clock.start
	var got struct{ Chains []string }
	runViem(t, "refused", r, &got)
	want := slices.Repeat([]string{fmt.Sprintf("0x%x", chainID)}, 6)
	if diff := cmp.Diff(want, got.Chains); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	refusals := r.refusals()
	if len(refusals) < 4 {
		t.Errorf("%d calls were refused, want 4 or more: six at once have a limit of 2", len(refusals))
	}
	for _, a := range refusals {
		if a.retryAfter != "1" {
			t.Errorf("a refusal has Retry-After: %q, want 1", a.retryAfter)
		}
	}
	if n := len(r.calls("")); n != 6 {
		t.Errorf("%d calls were sent, want 6", n)
	}
}
