package weir_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

func benchLimiter(b *testing.B, l ...weir.Limit) *weir.Single {
	b.Helper()
	s, err := weir.New(l...)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

var fast = weir.Limit{Rate: 100_000_000, Per: weir.Every(time.Second), Burst: 1_000_000}

func BenchmarkAllow(b *testing.B) {
	s := benchLimiter(b, fast)
	b.ReportAllocs()
	for b.Loop() {
		s.Allow()
	}
}

func BenchmarkAllowOdd(b *testing.B) {
	s := benchLimiter(b, weir.Limit{Rate: 99_999_989, Per: weir.Every(time.Second), Burst: 1_000_000})
	b.ReportAllocs()
	for b.Loop() {
		s.Allow()
	}
}

func BenchmarkAllow32(b *testing.B) {
	s := benchLimiter(b, fast)
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			s.Allow()
		}
	})
}

func BenchmarkDeny2(b *testing.B) {
	s := benchLimiter(b, weir.Limit{Rate: 1, Per: weir.Every(time.Hour)})
	s.Allow()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			s.Allow()
		}
	})
}

func BenchmarkTake(b *testing.B) {
	s := benchLimiter(b, fast)
	b.ReportAllocs()
	for b.Loop() {
		s.Take(1)
	}
}

func BenchmarkTakeDeny2(b *testing.B) {
	s := benchLimiter(b, weir.Limit{Rate: 1, Per: weir.Every(time.Hour)})
	s.Allow()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			s.Take(1)
		}
	})
}

func BenchmarkAllowDual(b *testing.B) {
	s := benchLimiter(b,
		weir.Limit{Name: "s", Rate: 30000, Per: weir.Every(time.Second), Algorithm: weir.DualWindow},
		weir.Limit{Name: "m", Rate: 260000, Per: weir.Every(time.Minute), Algorithm: weir.DualWindow})
	b.ReportAllocs()
	for b.Loop() {
		s.Allow()
	}
}

func BenchmarkClock(b *testing.B) {
	for b.Loop() {
		weir.Now()
	}
}

func BenchmarkTakeTwoLimits(b *testing.B) {
	s := benchLimiter(b, fast, weir.Limit{Name: "daily", Rate: 1 << 40, Per: weir.Calendar(weir.Day, nil)})
	b.ReportAllocs()
	for b.Loop() {
		s.Take(1)
	}
}
