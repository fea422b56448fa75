package guard

import (
	"cmp"
	"context"
	"hash/maphash"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/topk"
)

// The bounds of a ViolationLogger.
const (
	defaultLogEvery = 10 * time.Second

	// maxTopics is how many kinds, endpoints and shadow states are counted separately in an interval.
	maxTopics = 256

	// maxLogLines is how many lines an interval has: a violation and a summary of each topic, and
	// one line for all other topics.
	maxLogLines = 2*maxTopics + 1

	// maxDistinct is up to where the subjects of a summary are counted.
	maxDistinct = 1000

	// topSlots is the size of the sketch that finds the top subject. Those with more than a 16th
	// of the violations are in it for certain.
	topSlots = 16
)

// ViolationLogger logs violations, however many there are, in a bounded number of lines.
//
// The first violation begins an interval. In each interval, the first violation of a kind at an
// endpoint is logged at once, those in shadow apart from the others:
//
//	level=WARN msg="guard: violation" kind=exceeded subject=ip:192.0.2.1 endpoint=Login limit=minute shadow=false
//
// Further ones are counted, and at the end of the interval one line summarises them:
//
//	level=WARN msg="guard: more violations" kind=exceeded endpoint=Login shadow=false count=5210 subjects=37 top=ip:192.0.2.1 top_count=4800
//
// So the counts of all summaries and the number of single lines add up to the number of violations.
// Exceeded and Penalized are warnings, RapidFire and Sustained are errors. Penalized has "until",
// when the penalty ends. The number of subjects is a text, "≥1000" if there are more. The top subject
// is exact up to 16 subjects; with more, it is one of those with the most violations, and had
// at least "top_count" of them.
//
// An interval has at most 513 lines: the violations and summaries of 256 combinations of kind,
// endpoint and shadow, and one line, of the kind "others", that counts all beyond them. The memory
// of an interval is bounded too, to 10 MB at the very most, and is released at its end. While there
// are no violations, there is neither a timer nor a goroutine.
//
// Subjects are IDs and addresses, never keys or tokens. The handlers of package slog quote them, so
// that their text cannot forge lines.
type ViolationLogger struct {
	log   *slog.Logger  // set by NewLogger
	every time.Duration // set by NewLogger
	seed  maphash.Seed  // set by NewLogger

	mu     sync.Mutex // guards the fields below; it is not held while lines are written
	topics map[topic]*tally
	others *tally // of topics beyond maxTopics; nil if there are none
	timer  *time.Timer
	active bool // the timer runs, or tick does: an interval has begun
	closed bool

	ticks sync.WaitGroup // 1 while active
}

// topic is what has a summary of its own.
type topic struct {
	kind     Kind
	endpoint string
	shadow   bool
}

// tally has the violations of a topic in an interval that were not logged.
type tally struct {
	level    slog.Level
	count    int64
	distinct map[uint32]bool // hashes of subjects, at most maxDistinct + 1
	top      *topk.Sketch
}

// NewLogger returns a logger with intervals of a given length, by default 10 seconds. Its method Log
// can be used for Hooks.OnViolation. The default of log is slog.Default().
func NewLogger(log *slog.Logger, every time.Duration) *ViolationLogger {
	if every <= 0 {
		every = defaultLogEvery
	}
	if log == nil {
		log = slog.Default()
	}
	return &ViolationLogger{log: log, every: every, seed: maphash.MakeSeed(), topics: map[topic]*tally{}}
}

// Log logs or counts a violation. It may be called by any number of goroutines. After Close it does
// nothing.
func (l *ViolationLogger) Log(v Violation) {
	if l.isFirst(v) {
		l.writeViolation(v)
	}
}

// Close writes the summaries of the interval and waits until they are written. It may be called more
// than once.
func (l *ViolationLogger) Close() {
	l.mu.Lock()
	l.closed = true
	if l.active && l.timer.Stop() {
		l.endLocked()
	}
	l.mu.Unlock()
	l.ticks.Wait()
	l.flush()
}

// isFirst counts a violation unless it is the first of its topic, which is to be logged.
func (l *ViolationLogger) isFirst(v Violation) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.beginLocked()
	about := topic{v.Kind, v.Endpoint, v.Shadow}
	t, known := l.topics[about]
	switch {
	case known:
	case len(l.topics) < maxTopics:
		l.topics[about] = &tally{level: levelOf(v.Kind)}
		return true
	default:
		t = l.othersLocked(v.Kind)
	}
	t.add(uint32(maphash.String(l.seed, v.Subject)), v.Subject) //nolint:gosec // the lower half of the hash
	return false
}

// othersLocked returns the tally of topics beyond maxTopics. Its level is the highest of theirs.
func (l *ViolationLogger) othersLocked(k Kind) *tally {
	if l.others == nil {
		l.others = &tally{}
	}
	l.others.level = max(l.others.level, levelOf(k))
	return l.others
}

// beginLocked begins an interval unless there is one.
func (l *ViolationLogger) beginLocked() {
	if l.active {
		return
	}
	l.active = true
	l.ticks.Add(1)
	l.timer = time.AfterFunc(l.every, l.tick)
}

func (l *ViolationLogger) endLocked() {
	l.active = false
	l.ticks.Done()
}

// tick ends an interval. If there were violations while it wrote the summaries, the next interval
// has begun already, and its time runs from the end of the writing. So there is only one tick at a
// time even if writing takes longer than an interval.
func (l *ViolationLogger) tick() {
	l.flush()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.topics) == 0 {
		l.endLocked()
		return
	}
	l.timer.Reset(l.every)
}

// flush writes the summaries.
func (l *ViolationLogger) flush() {
	l.mu.Lock()
	topics, others := l.topics, l.others
	l.topics, l.others = map[topic]*tally{}, nil
	l.mu.Unlock()
	for _, about := range sortedTopics(topics) {
		l.writeSummary(topics[about], slog.String("kind", about.kind.String()),
			slog.String("endpoint", about.endpoint), slog.Bool("shadow", about.shadow))
	}
	if others != nil {
		l.writeSummary(others, slog.String("kind", "others"))
	}
}

// sortedTopics returns the topics that have a summary, those of an endpoint together.
func sortedTopics(topics map[topic]*tally) (list []topic) {
	for about, t := range topics {
		if t.count > 0 {
			list = append(list, about)
		}
	}
	slices.SortFunc(list, func(a, b topic) int {
		return cmp.Or(strings.Compare(a.endpoint, b.endpoint), cmp.Compare(a.kind, b.kind), compareBools(a.shadow, b.shadow))
	})
	return list
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func (l *ViolationLogger) writeViolation(v Violation) {
	attrs := []slog.Attr{
		slog.String("kind", v.Kind.String()),
		slog.String("subject", v.Subject),
		slog.String("endpoint", v.Endpoint),
		slog.String("limit", v.Limit),
		slog.Bool("shadow", v.Shadow),
	}
	if !v.Until.IsZero() {
		attrs = append(attrs, slog.Time("until", v.Until))
	}
	l.log.LogAttrs(context.Background(), levelOf(v.Kind), "guard: violation", attrs...)
}

func (l *ViolationLogger) writeSummary(t *tally, about ...slog.Attr) {
	top := slices.MaxFunc(t.top.Top(topSlots), func(a, b topk.Entry) int { return cmp.Compare(atLeast(a), atLeast(b)) })
	attrs := append(about,
		slog.Int64("count", t.count),
		slog.String("subjects", t.subjects()),
		slog.String("top", top.Label),
		slog.Int64("top_count", atLeast(top)))
	l.log.LogAttrs(context.Background(), t.level, "guard: more violations", attrs...)
}

// atLeast returns how many violations a subject had for certain.
func atLeast(e topk.Entry) int64 { return e.Count - e.Error }

// levelOf returns how severe violations of a kind are.
func levelOf(k Kind) slog.Level {
	if k == RapidFire || k == Sustained {
		return slog.LevelError
	}
	return slog.LevelWarn
}

// add counts a violation of a subject with a given hash.
func (t *tally) add(hash uint32, subject string) {
	if t.top == nil {
		t.top, t.distinct = topk.New(topSlots), map[uint32]bool{}
	}
	t.count++
	t.top.Add(subject, 1)
	if len(t.distinct) <= maxDistinct {
		t.distinct[hash] = true
	}
}

// subjects returns how many subjects there were.
func (t *tally) subjects() string {
	if len(t.distinct) > maxDistinct {
		return "≥" + strconv.Itoa(maxDistinct)
	}
	return strconv.Itoa(len(t.distinct))
}
