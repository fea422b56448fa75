package otlp

import (
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	maxAttributes = 16
	maxText       = 256
)

// Span is one request that is traced. Its methods are for one goroutine at a time; those of
// a nil Span do nothing.
type Span struct {
	exporter *Exporter
	trace    TraceID
	id       SpanID
	parent   SpanID // none in a root
	name     string
	start    time.Time

	attributes []attribute
	dropped    int // attributes for which there was no room
	failed     bool
	message    string // if failed
	took       time.Duration
	ended      bool // the rest belongs to the exporter now
}

type attribute struct {
	key    string
	kind   kind
	text   string
	number int64 // of a bool, 1 is true
}

type kind uint8

const (
	text kind = iota
	number
	boolean
)

// Start begins the span of a request that came with a traceparent header, "" if it had
// none, and returns nil if it is not traced. It may be called at the same time, also of a
// nil Exporter.
func (e *Exporter) Start(name, traceparent string) *Span {
	if e == nil {
		return nil
	}
	return e.start(name, traceparent)
}

func (e *Exporter) start(name, traceparent string) *Span {
	if declines(traceparent) {
		return nil
	}
	if traceparent != "" {
		if p, err := ParseTraceparent(traceparent); err == nil {
			return e.newSpan(name, p.Trace, p.Span)
		}
	}
	if e.sampled == 0 {
		return nil
	}
	low := rand.Uint64()
	if low>>1 >= e.sampled {
		return nil
	}
	return e.newSpan(name, newTrace(low), SpanID{})
}

// newTrace returns a random trace that ends in low. Sampling looks at these 8 bytes, as the
// samplers of others do, so those with the same ratio or a higher one agree.
func newTrace(low uint64) (id TraceID) {
	for high := rand.Uint64(); id == (TraceID{}); high = rand.Uint64() {
		put(id[:8], high)
		put(id[8:], low)
	}
	return id
}

func newSpanID() (id SpanID) {
	for id == (SpanID{}) {
		put(id[:], rand.Uint64())
	}
	return id
}

func put(dst []byte, n uint64) {
	for i := range dst {
		dst[i] = byte(n >> (56 - 8*i)) //nolint:gosec // the lowest eight bits
	}
}

func (e *Exporter) newSpan(name string, trace TraceID, parent SpanID) *Span {
	return &Span{exporter: e, trace: trace, id: newSpanID(), parent: parent, name: keep(name), start: time.Now()}
}

// Str sets an attribute to a text. The last value of a key counts. Keys are constants of
// the program.
func (s *Span) Str(key, value string) {
	if s != nil {
		s.set(attribute{key: key, kind: text, text: keep(value)})
	}
}

// Int sets an attribute to a number.
func (s *Span) Int(key string, value int64) {
	if s != nil {
		s.set(attribute{key: key, kind: number, number: value})
	}
}

// Bool sets an attribute to true or false.
func (s *Span) Bool(key string, value bool) {
	if s != nil {
		s.setBool(key, value)
	}
}

func (s *Span) setBool(key string, value bool) {
	a := attribute{key: key, kind: boolean}
	if value {
		a.number = 1
	}
	s.set(a)
}

func (s *Span) set(a attribute) {
	if s.ended {
		return
	}
	a.key = cut(a.key)
	for i := range s.attributes {
		if s.attributes[i].key == a.key {
			s.attributes[i] = a
			return
		}
	}
	if len(s.attributes) == maxAttributes {
		s.dropped++
		return
	}
	s.attributes = append(s.attributes, a)
}

// Fail says that the request failed through a fault of the server. A refusal is no
// failure.
func (s *Span) Fail(message string) {
	if s != nil && !s.ended {
		s.failed, s.message = true, keep(message)
	}
}

// Traceparent returns the header for requests that are made on behalf of this one. Of a nil
// Span it is "": pass on the header that came.
func (s *Span) Traceparent() string {
	if s == nil {
		return ""
	}
	return Traceparent{Trace: s.trace, Span: s.id, Sampled: true}.String()
}

// TraceID returns the id of the trace for logs, "" of a nil Span.
func (s *Span) TraceID() string {
	if s == nil {
		return ""
	}
	return hex.EncodeToString(s.trace[:])
}

// End ends the span, the first time it is called, and hands it over to be sent.
func (s *Span) End() {
	if s != nil {
		s.end()
	}
}

func (s *Span) end() {
	if s.ended {
		return
	}
	s.took, s.ended = time.Since(s.start), true
	select {
	case s.exporter.queue <- s:
	default:
		s.exporter.dropped.Add(1)
	}
}

// keep returns a copy of at most maxText bytes, lest a short text keep a whole request in
// memory.
func keep(s string) string { return strings.Clone(cut(s)) }

// cut returns at most maxText bytes, without half a character at the end.
func cut(s string) string {
	if len(s) <= maxText {
		return s
	}
	end := maxText
	for end > maxText-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}
