package topk

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestTheExampleOfTheDoc(t *testing.T) {
	s := New(2)
	for _, label := range []string{"a", "a", "a", "b", "c"} {
		s.Add(label, 1)
	}
	want := []Entry{{"a", 3, 0}, {"c", 2, 1}}
	if got := s.Top(10); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if n := s.Total(); n != 5 {
		t.Errorf("total %d", n)
	}
}

func TestTopIsBounded(t *testing.T) {
	s := New(3)
	if got := s.Top(5); len(got) != 0 {
		t.Errorf("%v of nothing", got)
	}
	for i := range 10 {
		s.Add(fmt.Sprint(i), int64(i))
	}
	for n, want := range map[int]int{-1: 0, 0: 0, 2: 2, 3: 3, math.MaxInt: 3} {
		if got := s.Top(n); len(got) != want {
			t.Errorf("Top(%d) has %d", n, len(got))
		}
	}
}

func TestOddWeightsAndSizes(t *testing.T) {
	s := New(-7) // one
	s.Add("a", 0)
	s.Add("a", -5)
	s.Add("a", math.MinInt64)
	if got := s.Top(1); len(got) != 0 {
		t.Errorf("%v of nothing", got)
	}
	s.Add("a", math.MaxInt64)
	s.Add("a", math.MaxInt64)
	s.Add("b", 1)
	if got, want := s.Top(2), []Entry{{"b", math.MaxInt64, math.MaxInt64}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestLabelsAreCut(t *testing.T) {
	const euro = "€" // three bytes; 512 is not a multiple
	tests := []struct {
		name, label string
		want        int
	}{
		{"none", "", 0},
		{"just fits", strings.Repeat("x", 512), 512},
		{"a byte too long", strings.Repeat("x", 513), 512},
		{"characters stay whole", strings.Repeat(euro, 300), 510},
		{"not text", strings.Repeat("\x80", 600), 512},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := New(1)
			s.Add(tt.label, 1)
			got := s.Top(1)[0].Label
			if len(got) != tt.want || !strings.HasPrefix(tt.label, got) {
				t.Errorf("%d bytes, want %d", len(got), tt.want)
			}
			if utf8.ValidString(tt.label) && !utf8.ValidString(got) {
				t.Error("half a character is left")
			}
			s.Add(tt.label, 1)
			if n := s.Top(1)[0].Count; n != 2 {
				t.Errorf("the same label again counts %d", n)
			}
		})
	}
}

func TestDecay(t *testing.T) {
	const half = int64(HalfLife)
	steps := []struct {
		name string
		now  int64
		want []Entry
	}{
		{"the first call starts the time", 5 * half, []Entry{{"a", 100, 0}, {"c", 8, 7}}},
		{"too early", 6*half - 1, []Entry{{"a", 100, 0}, {"c", 8, 7}}},
		{"one half life", 6*half + 1, []Entry{{"a", 50, 0}, {"c", 4, 4}}}, // of 1 that was sure, none is
		{"the clock goes back", half, []Entry{{"a", 50, 0}, {"c", 4, 4}}},
		{"the rest of a half life counts", 7 * half, []Entry{{"a", 25, 0}, {"c", 2, 2}}},
		{"two at once", 9 * half, []Entry{{"a", 6, 0}}},
		{"forever", math.MaxInt64, nil},
	}
	s := New(2)
	s.Add("a", 100)
	s.Add("b", 7)
	s.Add("c", 1)
	for _, step := range steps {
		s.Decay(step.now)
		if got := s.Top(9); !slices.Equal(got, step.want) {
			t.Fatalf("%s: %v, want %v", step.name, got, step.want)
		}
	}
	s.Add("d", 1)
	if got, want := s.Top(9), []Entry{{"d", 1, 0}}; !slices.Equal(got, want) {
		t.Errorf("afterwards: %v, want %v", got, want)
	}
}

func TestDecayOverTheWholeClock(t *testing.T) {
	s := New(1)
	s.Add("a", math.MaxInt64)
	s.Decay(math.MinInt64)
	s.Decay(math.MaxInt64)
	if got := s.Top(1); len(got) != 0 {
		t.Errorf("%v is left after 584 years", got)
	}
}

// The exact count of every label judges the sketch after each step.
func TestAgainstExactCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.IntRange(1, 12).Draw(t, "k")
		labels := rapid.IntRange(1, 40).Draw(t, "labels")
		s, exact, now, slack := New(k), map[string]int64{}, int64(0), int64(0)
		s.Decay(now)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if rapid.IntRange(0, 29).Draw(t, "what") == 0 {
				now += int64(HalfLife)
				s.Decay(now)
				slack = 1
				for label := range exact {
					exact[label] /= 2
				}
			} else {
				label := fmt.Sprint(rapid.IntRange(1, labels).Draw(t, "label"))
				n := rapid.Int64Range(1, 9).Draw(t, "n")
				s.Add(label, n)
				exact[label] += n
			}
			check(t, s, exact, k, slack)
		}
	})
}

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// check holds s to what the package promises. slack is 1 once something was halved.
func check(t failer, s *Sketch, exact map[string]int64, k int, slack int64) {
	t.Helper()
	top, most := s.Top(math.MaxInt), s.Total()/int64(k)
	if len(top) > k {
		t.Fatalf("%d labels of %d", len(top), k)
	}
	if !slices.IsSortedFunc(top, func(a, b Entry) int { return int(b.Count - a.Count) }) {
		t.Fatalf("not in order: %v", top)
	}
	listed := map[string]bool{}
	for _, e := range top {
		listed[e.Label] = true
		if e.Error < 0 || e.Error > most+slack {
			t.Fatalf("%v: an error above N/k = %d", e, most)
		}
		if n := exact[e.Label]; n > e.Count || n < e.Count-e.Error {
			t.Fatalf("%v, but it is %d", e, n)
		}
	}
	for label, n := range exact {
		if n > most && !listed[label] {
			t.Fatalf("%s is missing, with %d of which N/k is %d", label, n, most)
		}
	}
	if len(s.at) != len(top) || len(s.heap) != len(top) {
		t.Fatalf("%d labels, %d in the map, %d in the heap", len(top), len(s.at), len(s.heap))
	}
	for place, i := range s.heap {
		x := s.slots[i]
		if int(x.place) != place || s.at[x.label] != i || (place > 0 && s.slots[s.heap[(place-1)/2]].count > x.count) {
			t.Fatalf("the heap is in disorder at %d", place)
		}
	}
}

// A skewed stream, as an attack is: the worst are found and their counts are near.
func TestSkewedStream(t *testing.T) {
	const k, units = 100, 200_000
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	zipf := rand.NewZipf(random, 1.2, 1, 1<<20)
	s, exact := New(k), map[string]int64{}
	for range units {
		label := fmt.Sprint(zipf.Uint64())
		s.Add(label, 1)
		exact[label]++
	}
	check(t, s, exact, k, 0)
	for i, e := range s.Top(5) {
		if e.Label != fmt.Sprint(i) || e.Error*50 > e.Count {
			t.Errorf("place %d is %v, of truly %d", i, e, exact[e.Label])
		}
	}
}

// Strangers choose the labels; memory must not follow them.
func TestFloodOfLabels(t *testing.T) {
	const k = 100
	s := New(k)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range 200_000 {
		s.Add(fmt.Sprint(i, strings.Repeat("x", 600)), 1)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > k*(MaxLabel+300) {
		t.Errorf("%d bytes for %d labels", grown, k)
	}
	runtime.KeepAlive(s)
}

func TestConcurrently(t *testing.T) {
	const k, goroutines, each = 8, 8, 2_000
	s := New(k)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				s.Add("everybody", 2)
				s.Add(fmt.Sprint(g, i), 1)
				if i%100 == 0 {
					s.Top(3)
					s.Decay(0)
				}
			}
		})
	}
	wg.Wait()
	if n := s.Total(); n != 3*goroutines*each {
		t.Errorf("%d units, want %d", n, 3*goroutines*each)
	}
	e := s.Top(1)[0]
	if e.Label != "everybody" || e.Count < 2*goroutines*each || e.Count-e.Error > 2*goroutines*each {
		t.Errorf("%v, want %d", e, 2*goroutines*each)
	}
}

func TestKnownLabelsAllocateNothing(t *testing.T) {
	s, labels := filled(100)
	i := 0
	if n := testing.AllocsPerRun(1000, func() {
		s.Add(labels[i%len(labels)], 1)
		i++
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func filled(k int) (*Sketch, []string) {
	s := New(k)
	var labels []string
	for i := range k {
		labels = append(labels, fmt.Sprintf("203.0.113.%d", i))
		s.Add(labels[i], int64(i))
	}
	return s, labels
}

func BenchmarkAddKnown(b *testing.B) {
	for _, k := range []int{100, 1000} {
		b.Run(fmt.Sprint("k=", k), func(b *testing.B) {
			s, labels := filled(k)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				s.Add(labels[i%len(labels)], 1)
			}
		})
	}
}

func BenchmarkAddKnownParallel(b *testing.B) {
	s, labels := filled(100)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := rand.IntN(100); pb.Next(); i++ {
			s.Add(labels[i%len(labels)], 1)
		}
	})
}

func BenchmarkAddNew(b *testing.B) {
	s, _ := filled(100)
	labels := make([]string, 1<<16)
	for i := range labels {
		labels[i] = fmt.Sprint("new", i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Add(labels[i%len(labels)], 1)
	}
}

func BenchmarkTop(b *testing.B) {
	s, _ := filled(100)
	for b.Loop() {
		s.Top(10)
	}
}
