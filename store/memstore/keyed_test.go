package memstore_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
)

// 500 goroutines that proceed only without an error keep to the limit, also if all of them
// want the same key.
func TestKeyedWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := weir.Must(memstore.NewKeyed(weir.PerSecond(50)))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		var ran, refused atomic.Int64
		var wg sync.WaitGroup
		for range 500 {
			wg.Go(func() {
				err := k.Wait(ctx, "host")
				switch denied, ok := errors.AsType[*weir.DeniedError](err); {
				case err == nil:
					ran.Add(1)
				case ok && denied.Decision.Reason == weir.TooLate:
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if ran.Load() != 50+3*50 || refused.Load() != 300 {
			t.Errorf("%d ran and %d were refused, want 200 and 300", ran.Load(), refused.Load())
		}
	})
}

func TestKeyed(t *testing.T) {
	k := weir.Must(memstore.NewKeyed(weir.Limit{Rate: 2, Per: weir.Every(time.Hour)}))
	for i, want := range []bool{true, true, false} {
		if k.Allow("a") != want {
			t.Errorf("unit %d of two", i+1)
		}
	}
	if !k.Allow("b") {
		t.Error("another key")
	}
	if d := k.Take("a", 1); d.Reason != weir.Exhausted || d.RetryAfter <= 0 {
		t.Errorf("%+v", d)
	}
	long := strings.Repeat("k", weir.MaxKeyBytes+1)
	if d := k.Take(long, 1); d.Allowed || d.Reason != weir.Invalid || d.RetryAfter != weir.Never {
		t.Errorf("a key that is too long: %+v", d)
	}
	if err := k.Wait(t.Context(), long); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("a key that is too long: %v", err)
	}
	if err := k.WaitN(t.Context(), "c", 3); err == nil {
		t.Error("a cost that can never fit may not proceed")
	}
	if err := k.Reset("a"); err != nil || !k.Allow("a") {
		t.Errorf("after a reset: %v", err)
	}
	if _, err := k.Reserve(t.Context(), "d", 3, 0); !errors.As(err, new(*weir.DeniedError)) {
		t.Errorf("a reservation that is refused: %v", err)
	}
	r, err := k.Reserve(t.Context(), "d", 2, 0)
	if err != nil || k.Allow("d") {
		t.Errorf("a reservation: %v", err)
	}
	if out, err := r.Commit(t.Context(), 1); err != nil || len(out) != 1 || out[0].Refunded != 1 || !k.Allow("d") {
		t.Errorf("settled %+v, %v", out, err)
	}
	if _, err := memstore.NewKeyed(weir.Limit{}); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("no rate: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("Must did not panic")
		}
	}()
	weir.Must(memstore.NewKeyed())
}
