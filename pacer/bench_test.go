package pacer

import (
	"context"
	"testing"
)

// At 100 million per second everybody is always late, so this is what the pacer
// itself costs.
func BenchmarkWait(b *testing.B) {
	for _, m := range []Mode{Average, Burst} {
		b.Run(m.String(), func(b *testing.B) {
			p, err := New(Config{Rate: 1e8, Mode: m})
			if err != nil {
				b.Fatal(err)
			}
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Wait(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkWaitParallel(b *testing.B) {
	p, err := New(Config{Rate: 1e8})
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := p.Wait(ctx); err != nil {
				b.Error(err)
			}
		}
	})
}
