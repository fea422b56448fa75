// Package soak looks for what grows: it takes samples of processes over a long time, and
// says by a line through the second half of them how much each figure grows in ten minutes.
package soak

import "time"

// Sample is the usage of a process at one time.
type Sample struct {
	At         time.Duration // since the load began
	RSS        float64       // bytes
	Heap       float64       // bytes in objects, dead ones included
	Goroutines float64
	FDs        float64 // open files and connections
	Calls      float64 // so far
}

// Series is the samples of one process, in order.
type Series struct {
	Name    string
	Samples []Sample
}

// A Figure is a part of a sample.
type Figure func(Sample) float64

// The figures that are reported.
var (
	RSS        Figure = func(s Sample) float64 { return s.RSS / (1 << 20) } // in MiB
	Heap       Figure = func(s Sample) float64 { return s.Heap / (1 << 20) }
	Goroutines Figure = func(s Sample) float64 { return s.Goroutines }
	FDs        Figure = func(s Sample) float64 { return s.FDs }
)

// Slope returns how much a figure grows in ten minutes, by the line that fits the second
// half of the samples best: the first half fills tables and pools, which is no leak. It is
// the sum of (t − t̄)(y − ȳ) over the sum of (t − t̄)², 0 with fewer than two samples.
//
// For example, 10, 12, 11 and 13 MiB a minute apart grow by 0.8 MiB a minute, so by 8.
func (s *Series) Slope(f Figure) float64 {
	half := secondHalf(s.Samples)
	var meanT, meanY float64
	for _, x := range half {
		meanT += x.At.Minutes() / 10 / float64(len(half))
		meanY += f(x) / float64(len(half))
	}
	var both, square float64
	for _, x := range half {
		t := x.At.Minutes()/10 - meanT
		both += t * (f(x) - meanY)
		square += t * t
	}
	if square == 0 {
		return 0
	}
	return both / square
}

// secondHalf returns the samples from the middle of the time on.
func secondHalf(all []Sample) []Sample {
	if len(all) == 0 {
		return nil
	}
	middle := all[len(all)-1].At / 2
	for i, s := range all {
		if s.At >= middle {
			return all[i:]
		}
	}
	return nil
}

// Rate returns how many calls there were in a second.
func (s *Series) Rate() float64 {
	if len(s.Samples) == 0 {
		return 0
	}
	last := s.Samples[len(s.Samples)-1]
	return last.Calls / max(last.At.Seconds(), 1e-9)
}
