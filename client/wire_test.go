package client

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir"
	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
)

func TestForeignColumns(t *testing.T) {
	p, err := weir.NewPolicy("p", weir.Limit{Name: "short", Rate: 1, Per: weir.Every(time.Second)}, weir.Limit{Name: "long", Rate: 9, Per: weir.Every(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	good := func() *weirv1.CheckBatchResponse {
		return &weirv1.CheckBatchResponse{
			Allowed: []bool{true, false}, LimitedBy: []string{"", "p.long"}, LimitedByIndex: []uint32{0, 1}, Reason: []string{"admitted", "weather"}, ReasonIndex: []uint32{0, 1},
			Limit: []int64{9, 9}, RetryAfterMs: []int64{0, 1 << 62}, ResetAfterMs: []int64{5, -1},
		}
	}
	if err := checkColumns(good(), 2); err != nil {
		t.Fatal(err)
	}
	want := weir.Decision{Reason: weir.Exhausted, By: 1, Limit: 9, RetryAfter: 9223372036854 * time.Millisecond, ResetAfter: weir.Never}
	if got := decision(p, good(), 1); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for name, spoil := range map[string]func(*weirv1.CheckBatchResponse){
		"allowed":          func(a *weirv1.CheckBatchResponse) { a.Allowed = a.Allowed[:1] },
		"limit":            func(a *weirv1.CheckBatchResponse) { a.Limit = a.Limit[:1] },
		"remaining":        func(a *weirv1.CheckBatchResponse) { a.Remaining = []int64{1, 2, 3} },
		"retry_after_ms":   func(a *weirv1.CheckBatchResponse) { a.RetryAfterMs = a.RetryAfterMs[:1] },
		"reset_after_ms":   func(a *weirv1.CheckBatchResponse) { a.ResetAfterMs = a.ResetAfterMs[:1] },
		"limited_by_index": func(a *weirv1.CheckBatchResponse) { a.LimitedByIndex[0] = 2 },
		"reason_index":     func(a *weirv1.CheckBatchResponse) { a.ReasonIndex[1] = 2 },
		"reason":           func(a *weirv1.CheckBatchResponse) { a.Reason = nil },
	} {
		bad := good()
		if spoil(bad); checkColumns(bad, 2) == nil {
			t.Errorf("%s: passed", name)
		}
	}
}

// FuzzAnswer: whatever a daemon answers, it is a decision or an error.
func FuzzAnswer(f *testing.F) {
	p, err := weir.NewPolicy("p", weir.Limit{Rate: 1, Per: weir.Every(time.Second)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{}, 0)
	whole, err := proto.Marshal(&weirv1.CheckBatchResponse{Allowed: []bool{true}, Reason: []string{"admitted"}, LimitedBy: []string{"p"}, Limit: []int64{1}, ResetAfterMs: []int64{-1}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole, 1)
	f.Fuzz(func(t *testing.T, body []byte, n int) {
		var a weirv1.CheckBatchResponse
		if proto.Unmarshal(body, &a) != nil || checkColumns(&a, n) != nil {
			return
		}
		for i := range n {
			if d := decision(p, &a, i); d.RetryAfter < 0 || d.ResetAfter < 0 {
				t.Errorf("%+v", d)
			}
		}
	})
}
