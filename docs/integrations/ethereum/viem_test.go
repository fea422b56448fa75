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
	r := serve(t, "weir.yaml", 0)
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

// TestViemRetries makes more calls at once than the route takes. viem tries those that are refused again until they
// get their answers: single ones after times of its own, because to it the error of JSON-RPC counts, and batches when
// Retry-After has passed. To the route a second passes with the last refusal.
func TestViemRetries(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		what     string
		batch    bool
		refusals int64
	}{
		{"refused", false, 3},     // three calls
		{"refusedBatch", true, 1}, // the second batch
	} {
		t.Run(tt.what, func(t *testing.T) {
			t.Parallel()
			r := serve(t, filepath.Join("testdata", "limited.yaml"), tt.refusals)
			var got struct {
				Chains   []string
				Refusals []string // Retry-After
			}
			runViem(t, tt.what, r, &got)
			if diff := cmp.Diff(slices.Repeat([]string{fmt.Sprintf("0x%x", chainID)}, 6), got.Chains); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if n := int64(len(got.Refusals)); n < tt.refusals {
				t.Errorf("%d refusals, want %d or more: of six calls three are at once", n, tt.refusals)
			}
			for _, after := range got.Refusals {
				if after != "1" {
					t.Errorf("a refusal has Retry-After: %q, want 1", after)
				}
			}
			calls := r.calls("")
			if wrong := slices.ContainsFunc(calls, func(s sent) bool { return s.batch != tt.batch }); wrong || len(calls) != 6 {
				t.Errorf("%+v were sent, want six calls", calls)
			}
		})
	}
}
