package topk

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	// MaxLabel is how many bytes of a label are kept.
	MaxLabel = 512

	// HalfLife is how long it takes until a unit counts half.
	HalfLife = 10 * time.Minute
)

// Sketch counts labels in a bounded amount of memory. Its methods may be called at the
// same time.
type Sketch struct {
	k int // set by New

	mu    sync.Mutex // guards the fields below
	at    map[string]int32
	slots []slot  // never more than k
	heap  []int32 // slots, a least count first: heap[i] counts no more than heap[2i+1] and heap[2i+2]
	faded int64   // Decay has been done up to this moment
	began bool    // faded is set
}

// slot is one counter. It stays where it is while it is in use; place says where the heap
// has it.
type slot struct {
	label      string
	count, err int64
	place      int32
}

// Entry is a label and its count, for example {"203.0.113.9", 5000, 20}: at least 4,980
// and at most 5,000 units.
type Entry struct {
	Label string
	Count int64 // the true count is no more than this
	Error int64 // and less by no more than that
}

// New returns a sketch of k labels, at least one.
func New(k int) *Sketch {
	k = min(max(1, k), math.MaxInt32)
	return &Sketch{k: k, at: map[string]int32{}}
}

// Add counts n units for a label.
func (s *Sketch) Add(label string, n int64) {
	if n <= 0 {
		return
	}
	label = cut(label)
	s.mu.Lock()
	defer s.mu.Unlock()
	i, known := s.at[label]
	if !known {
		i = s.admitLocked(strings.Clone(label))
	}
	x := &s.slots[i]
	x.count = sum(x.count, n)
	s.sinkLocked(int(x.place))
}

// admitLocked finds a place for a label that has none: a free one, or that of a label
// with the least count, which becomes the new label's error.
func (s *Sketch) admitLocked(label string) int32 {
	if len(s.slots) < s.k {
		i := int32(len(s.slots)) //nolint:gosec // at most k
		s.slots = append(s.slots, slot{label: label, place: i})
		s.heap = append(s.heap, i)
		s.at[label] = i
		s.riseLocked(int(i))
		return i
	}
	i := s.heap[0]
	x := &s.slots[i]
	delete(s.at, x.label)
	s.at[label] = i
	x.label, x.err = label, x.count
	return i
}

// Top returns the n labels with the highest counts, highest first.
func (s *Sketch) Top(n int) []Entry {
	list := s.entries()
	slices.SortFunc(list, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Error, b.Error), cmp.Compare(a.Label, b.Label))
	})
	return list[:min(max(0, n), len(list))]
}

func (s *Sketch) entries() []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Entry, 0, len(s.slots))
	for _, x := range s.slots {
		list = append(list, Entry{x.label, x.count, x.err})
	}
	return list
}

// Total returns what all counts add up to: every unit that was added, those of labels
// that are no longer listed included, faded as they are.
func (s *Sketch) Total() (units int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.slots {
		units = sum(units, x.count)
	}
	return units
}

// Decay halves the counts once for each HalfLife that has passed by now, in nanoseconds
// of a clock that all calls share. The first call starts the time.
func (s *Sketch) Decay(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.began {
		s.faded, s.began = now, true
		return
	}
	if now <= s.faded {
		return
	}
	passed := uint64(now) - uint64(s.faded) // right even where the difference overflows an int64
	halves := passed / uint64(HalfLife)
	s.faded += int64(halves * uint64(HalfLife)) //nolint:gosec // at most now
	if halves > 0 {
		s.halveLocked(min(halves, 63))
	}
}

// halveLocked halves all counts, times over, and forgets those that come to nothing.
// Rounding down each time is the same as rounding down at the end. Halving keeps the
// order but for ties, so what is left needs only to be put in a heap again.
func (s *Sketch) halveLocked(times uint64) {
	kept := s.slots[:0]
	for _, x := range s.slots {
		sure := (x.count - x.err) >> times
		x.count >>= times
		x.err = x.count - sure
		if x.count == 0 {
			delete(s.at, x.label)
			continue
		}
		kept = append(kept, x)
	}
	clear(s.slots[len(kept):]) // lets go of the labels
	s.slots, s.heap = kept, s.heap[:len(kept)]
	for i := range s.slots {
		s.slots[i].place, s.heap[i] = int32(i), int32(i) //nolint:gosec // at most k
		s.at[s.slots[i].label] = int32(i)                //nolint:gosec // at most k
	}
	for place := len(s.heap)/2 - 1; place >= 0; place-- {
		s.sinkLocked(place)
	}
}

// sinkLocked moves a counter that has grown away from the top.
func (s *Sketch) sinkLocked(place int) {
	moved := s.heap[place]
	count := s.slots[moved].count
	for {
		child := 2*place + 1
		if child >= len(s.heap) {
			break
		}
		if right := child + 1; right < len(s.heap) && s.countLocked(right) < s.countLocked(child) {
			child = right
		}
		if s.countLocked(child) >= count {
			break
		}
		s.putLocked(place, s.heap[child])
		place = child
	}
	s.putLocked(place, moved)
}

// riseLocked moves a new counter, of nothing as yet, to the top.
func (s *Sketch) riseLocked(place int) {
	moved := s.heap[place]
	for place > 0 {
		parent := (place - 1) / 2
		s.putLocked(place, s.heap[parent])
		place = parent
	}
	s.putLocked(place, moved)
}

func (s *Sketch) countLocked(place int) int64 { return s.slots[s.heap[place]].count }

func (s *Sketch) putLocked(place int, slot int32) {
	s.heap[place] = slot
	s.slots[slot].place = int32(place) //nolint:gosec // at most k
}

// sum adds two counts that are not negative.
func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// cut returns at most MaxLabel bytes of a label. It does not end in the middle of a
// character.
func cut(label string) string {
	if len(label) <= MaxLabel {
		return label
	}
	end := MaxLabel
	for end > MaxLabel-utf8.UTFMax && !utf8.RuneStart(label[end]) {
		end--
	}
	if !utf8.RuneStart(label[end]) { // not text
		end = MaxLabel
	}
	return label[:end]
}
