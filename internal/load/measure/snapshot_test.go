package measure

import (
	"math"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// Percentiles of Last are upper ends of buckets: 1.003 ms for 1 ms.
func TestSnapshot(t *testing.T) {
	const us, millis = time.Microsecond, time.Millisecond
	second0 := []Op{op(100, 100, 101), failed(600, 650, 700, "503")} // responses 1 and 100 ms
	second1 := append(second0, op(1000, 1200, 1201))                 // response 201 ms
	tests := []struct {
		name string
		ops  []Op
		now  float64
		want Snapshot
	}{
		{"at once", nil, 0, Snapshot{}},
		{"in the first second, all so far", second0, 800, Snapshot{
			Total: Figures{Ops: 2, Errors: 1, Rate: 2.5, P50: 1 * millis, P99: 100 * millis},
			Last:  Figures{Ops: 2, Errors: 1, Rate: 2.5, P50: 1003 * us, P99: 100_351 * us},
			Wait:  50 * millis,
		}},
		{"then the last full one", second1, 1250, Snapshot{
			Total: Figures{Ops: 3, Errors: 1, Rate: 2.4, P50: 100.031 * 1000 * us, P99: 201 * millis},
			Last:  Figures{Ops: 2, Errors: 1, Rate: 2, P50: 1003 * us, P99: 100_351 * us},
			Wait:  50 * millis,
		}},
		{"and the next", second1, 2500, Snapshot{
			Total: Figures{Ops: 3, Errors: 1, Rate: 1.2, P50: 100.031 * 1000 * us, P99: 201 * millis},
			Last:  Figures{Ops: 1, Rate: 1, P50: 201_727 * us, P99: 201_727 * us},
			Wait:  200 * millis,
		}},
		{"in a stall, none", second1, 4000, Snapshot{
			Total: Figures{Ops: 3, Errors: 1, Rate: 0.75, P50: 100.031 * 1000 * us, P99: 201 * millis},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := recorded(tt.ops...)
			r.SetTarget(t0, 4)
			tt.want.Elapsed, tt.want.Target = duration(tt.now), 4
			if diff := cmp.Diff(tt.want, r.Snapshot(after(tt.now))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// An operation of a second that is long over is in the total only.
func TestALateOperationIsNotRecent(t *testing.T) {
	s := recorded(op(4000, 4000, 4100), op(0, 0, 2000)).Snapshot(after(5000))
	if s.Last.Ops != 1 || s.Total.Ops != 2 {
		t.Errorf("last %+v, total %+v", s.Last, s.Total)
	}
}

// Operations under way are known if workers tell.
func TestInFlight(t *testing.T) {
	r := NewRun(t0)
	a, b, c := r.Recorder(), r.Recorder(), r.Recorder()
	a.Begin(after(1000), after(1300))
	b.Begin(after(1500), after(1500))
	c.Begin(after(1000), after(1000))
	c.Record(op(1000, 1000, 1100))
	s := r.Snapshot(after(5000))
	if s.InFlight != 2 || s.Oldest != 4*time.Second || s.Wait != 300*time.Millisecond {
		t.Errorf("%d in flight, oldest %v, wait %v", s.InFlight, s.Oldest, s.Wait)
	}
}

func TestLine(t *testing.T) {
	const millis = time.Millisecond
	usual := Snapshot{
		Elapsed: 12_700 * millis, Target: 5000,
		Total: Figures{Ops: 60_000, Errors: 3},
		Last:  Figures{Ops: 4998, Rate: 4998.2, P50: 1_212_345, P99: 4_600_000},
		Wait:  85 * time.Microsecond,
	}
	free := usual
	free.Target = 0
	stall := Snapshot{Elapsed: 13 * time.Second, Target: 2.5, InFlight: 64, Oldest: 3210 * millis, Wait: 20 * millis}
	tests := []struct {
		name  string
		s     Snapshot
		total time.Duration
		want  string
	}{
		{"usual", usual, 30 * time.Second, "12s/30s  4,998/5,000 per s  p50 1.21 ms  p99 4.6 ms  errors 3  wait 85 µs"},
		{"no end, no target", free, 0, "12s  4,998 per s  p50 1.21 ms  p99 4.6 ms  errors 3  wait 85 µs"},
		{"stall", stall, time.Minute, "13s/1m0s  0/2.5 per s  none done, oldest 3.21 s  errors 0  wait 20 ms"},
		{"start", Snapshot{}, time.Minute, "0s/1m0s  0 per s  none done  errors 0  wait 0 s"},
	}
	for _, tt := range tests {
		if got := Line(tt.s, tt.total); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

// The longest lines fit.
func TestLineFits(t *testing.T) {
	const long = 99_900 * time.Microsecond
	for _, rate := range []float64{999_999.4, 1.23e6, 123e9} {
		for _, errors := range []int64{999_999, math.MaxInt64 / 10_000} {
			for _, ops := range []int64{0, 1} {
				s := Snapshot{
					Elapsed: 23*time.Hour + 59*time.Minute + 59*time.Second, Target: rate,
					Total: Figures{Ops: errors, Errors: errors},
					Last:  Figures{Ops: ops, Rate: rate, P50: long, P99: long},
					Wait:  long, InFlight: 1000, Oldest: 23 * time.Hour,
				}
				if line := Line(s, 24*time.Hour); utf8.RuneCountInString(line) > 100 {
					t.Errorf("%d columns: %s", utf8.RuneCountInString(line), line)
				}
			}
		}
	}
}
