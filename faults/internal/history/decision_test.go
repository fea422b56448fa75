package history

import (
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	t.Parallel()
	var list []Decision
	for i := range 100 {
		sent := time.Duration(i) * time.Second
		list = append(list, Decision{Sent: sent, Received: sent + time.Duration(100-i)*ms, Status: 200})
	}
	for _, tt := range []struct {
		p    float64
		want time.Duration
	}{{0, ms}, {0.5, 51 * ms}, {0.99, 100 * ms}, {1, 100 * ms}} {
		if got := Percentile(list, tt.p); got != tt.want {
			t.Errorf("percentile %v is %v, want %v", tt.p, got, tt.want)
		}
	}
	if got := Percentile(nil, 1); got != 0 {
		t.Errorf("of nothing it is %v, want 0", got)
	}
	if got := len(Between(list, 10*time.Second, 20*time.Second)); got != 10 {
		t.Errorf("%d between, want 10", got)
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	list := []Decision{{Status: 200}, {Status: 503}, {Err: "connection reset"}}
	if got := len(Failures(list)); got != 2 {
		t.Errorf("%d failures, want 2", got)
	}
}
