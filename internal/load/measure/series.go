package measure

import (
	"slices"
	"time"
)

// maxPoints bounds the series. A chart is not wider in pixels.
const maxPoints = 600

// series is a run over time: points of equal width, from the start of the run on. When
// there would be too many, neighbours are merged and the width doubles. Points keep
// their histograms, so the percentiles of a merged point are those of all its operations,
// and operations that are counted late still find their point.
type series struct {
	width  time.Duration
	points []point
}

// point is one piece of a series.
type point struct {
	ops, errors       int64
	due               float64 // operations that were due
	service, response *coarse // nil if there are no operations
}

// add counts an operation that ended so long after the start.
func (s *series) add(ended time.Duration, op *Op) {
	p := s.at(ended)
	if p.service == nil {
		p.service, p.response = new(coarse), new(coarse)
	}
	p.ops++
	if !op.OK {
		p.errors++
	}
	p.service.add(op.service())
	p.response.add(op.response())
}

// addDue spreads a target rate over the points from one time to another.
func (s *series) addDue(from, to time.Duration, rate float64) {
	s.at(to - 1) // so that the width stays the same below
	for from < to {
		edge := min((from/s.width+1)*s.width, to)
		s.at(from).due += rate * (edge - from).Seconds()
		from = edge
	}
}

// at returns the point of a time. It may double the width.
func (s *series) at(offset time.Duration) *point {
	for offset/s.width >= maxPoints {
		s.double()
	}
	i := int(offset / s.width)
	for i >= len(s.points) {
		s.points = append(s.points, point{})
	}
	return &s.points[i]
}

// double merges neighbours.
func (s *series) double() {
	half := (len(s.points) + 1) / 2
	for i := range half {
		s.points[i] = s.points[2*i]
		if 2*i+1 < len(s.points) {
			s.points[i].absorb(s.points[2*i+1])
		}
	}
	clear(s.points[half:]) // lets go of their histograms
	s.points = s.points[:half]
	s.width *= 2
}

// absorb adds what is in q. It may keep q's histograms.
func (p *point) absorb(q point) {
	p.ops += q.ops
	p.errors += q.errors
	p.due += q.due
	switch {
	case q.service == nil:
	case p.service == nil:
		p.service, p.response = q.service, q.response
	default:
		p.service.merge(q.service)
		p.response.merge(q.response)
	}
}

// clone returns a point with histograms of its own.
func (p point) clone() point {
	if p.service != nil {
		service, response := *p.service, *p.response
		p.service, p.response = &service, &response
	}
	return p
}

// span is a point with its place in time.
type span struct {
	point
	from, to time.Duration
}

// until returns the points of a run that took so long. The last one is shorter than the
// others, or longer: less than half a width would make rates of a few operations, so it
// joins the one before.
func (s *series) until(duration time.Duration) []span {
	if duration == 0 && len(s.points) == 0 {
		return nil
	}
	s.at(max(0, duration-1)) // the end of a run may be silent
	points := slices.Clone(s.points)
	n := int(duration / s.width)
	if n > 0 && duration%s.width < s.width/2 {
		if n < len(points) {
			points[n-1] = points[n-1].clone()
			points[n-1].absorb(points[n])
		}
		n--
	}
	return s.spans(points[:n+1], duration)
}

func (s *series) spans(points []point, duration time.Duration) []span {
	out := make([]span, len(points))
	for i, p := range points {
		from := time.Duration(i) * s.width
		out[i] = span{point: p, from: from, to: from + s.width}
	}
	out[len(out)-1].to = duration
	return out
}
