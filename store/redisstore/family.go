package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// A family is what is known of all policies of one name: which of them were set in
// place of others, and when.
//
// Redis has the same as a list (see set.lua), and its length over all time is the
// family's version. Every row has the version that it was written under. A row of
// an older one is brought up to date when it is met, as of the instants of the
// Sets that it has missed; a row of a later one tells a process that it
// has missed a Set itself. Usually a process has learnt that before: the server
// tells whoever watches that a record has changed.
type family struct {
	name  string // set by familyOf, like the next two
	key   string
	store *Store

	stale atomic.Bool // the record may have changed since it was loaded

	loaded atomic.Int64           // when, in ns of the process's clock
	sets   atomic.Pointer[[]swap] // in order; replaced by whose turn it is, never changed

	turn  chan struct{}           // has room for one, who may touch the record and the fields below
	known map[uint64]*weir.Policy // the policies of sets, by fingerprint
	tries atomic.Int64            // to load the record; read by anybody
	err   error                   // of the last try
}

// A swap is one Set.
type swap struct {
	version  int
	at       int64 // µs
	old, new *weir.Policy
	oldPrint uint64
	text     string // as it is in Redis
}

// recordAge is after how long a record is loaded again although nobody said that
// it has changed: what the server tells may get lost with a connection.
const recordAge = 10 * time.Second

// familyOf returns what is known of a name.
func (s *Store) familyOf(name string) *family {
	if f, ok := s.families.Load(name); ok {
		return f.(*family)
	}
	name = strings.Clone(name)
	f := &family{name: name, key: s.setKey(name), store: s, turn: make(chan struct{}, 1), known: map[uint64]*weir.Policy{}}
	f.sets.Store(&[]swap{})
	f.stale.Store(true)
	was, _ := s.families.LoadOrStore(name, f)
	return was.(*family)
}

// version returns the number of Sets that are known.
func (f *family) version() int {
	sets := *f.sets.Load()
	if len(sets) == 0 {
		return 0
	}
	return sets[len(sets)-1].version
}

// lock waits for its turn, but not longer than ctx. It is a lock that knows contexts.
func (f *family) lock(ctx context.Context) error {
	select {
	case f.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *family) unlock() { <-f.turn }

// refresh loads the record if it may have changed. Of those who come together one
// asks, and if it fails the others do not ask again.
func (f *family) refresh(ctx context.Context) error {
	before := f.tries.Load()
	if err := f.lock(ctx); err != nil {
		return err
	}
	defer f.unlock()
	if !f.mayHaveChanged(weir.Now()) {
		return nil
	}
	if f.err != nil && f.tries.Load() != before {
		return f.err
	}
	return f.loadLocked(ctx)
}

func (f *family) mayHaveChanged(now weir.Instant) bool {
	return f.stale.Load() || now.Sub(weir.Instant(f.loaded.Load())) > recordAge
}

// loadLocked loads the record. That it cannot is an error only if the record is said
// to have changed; if it is merely old, what is known will do a while longer.
func (f *family) loadLocked(ctx context.Context) error {
	told := f.stale.Swap(false) // before asking: what changes later is told again
	f.loaded.Store(int64(weir.Now()))
	f.err = f.askLocked(ctx)
	f.tries.Add(1)
	if f.err == nil || !told {
		return nil
	}
	f.stale.Store(true)
	return f.err
}

// askLocked asks Redis for the record. If Redis has lost what this process knows, it
// gets it back.
func (f *family) askLocked(ctx context.Context) error {
	texts, err := f.store.ask(ctx, f.store.client.B().Lrange().Key(f.key).Start(0).Stop(-1).Build()).AsStrSlice()
	if err != nil {
		return f.unread(err)
	}
	sets, err := f.parse(texts)
	if err != nil {
		return err
	}
	last := 0
	if len(sets) > 0 {
		last = sets[len(sets)-1].version
	}
	if last < f.version() {
		return f.restoreLocked(ctx, last)
	}
	f.sets.Store(&sets)
	return nil
}

func (f *family) restoreLocked(ctx context.Context, last int) error {
	args := []string{strconv.Itoa(last), recordKept}
	for _, s := range *f.sets.Load() {
		if s.version > last {
			args = append(args, s.text)
		}
	}
	if err := f.store.eval(ctx, restoreScript, []string{f.key}, args).Error(); err != nil {
		return f.unread(err)
	}
	return nil
}

// unread returns why the record could not be loaded. It is never weir.ErrUnknown, since
// nothing was charged.
func (f *family) unread(err error) error {
	if isState(err) {
		return stateError(fmt.Errorf("%s: %w", f.key, err))
	}
	return fmt.Errorf("redisstore: %s: %w", f.key, err)
}

// recordKept is for how long records are kept, in ms: 400 days, begun anew with
// every Set and every process that starts.
const recordKept = "34560000000"

// parse reads a record.
func (f *family) parse(texts []string) ([]swap, error) {
	sets := make([]swap, 0, len(texts))
	for _, text := range texts {
		s, err := f.parseOne(text)
		if err != nil {
			return nil, stateError(fmt.Errorf("%s in Redis is not what weir writes there: %w", f.key, err))
		}
		sets = append(sets, s)
	}
	return sets, nil
}

func (f *family) parseOne(text string) (swap, error) {
	for _, s := range *f.sets.Load() { // those that were known stay the same objects
		if s.text == text {
			return s, nil
		}
	}
	version, rest, _ := strings.Cut(text, " ")
	at, body, _ := strings.Cut(rest, " ")
	s := swap{text: text}
	var err error
	if s.version, err = strconv.Atoi(version); err != nil {
		return swap{}, err
	}
	if s.at, err = strconv.ParseInt(at, 10, 64); err != nil {
		return swap{}, err
	}
	var change wireChange
	if err = json.Unmarshal([]byte(body), &change); err != nil {
		return swap{}, err
	}
	if s.old, err = f.policy(change.Old); err != nil {
		return swap{}, err
	}
	s.new, err = f.policy(change.New)
	s.oldPrint = fingerprint(s.old)
	return s, err
}

// wireChange is a Set as records have it.
type wireChange struct {
	Old []wireLimit `json:"old"`
	New []wireLimit `json:"new"`
}

func changeText(old, new *weir.Policy) (string, error) {
	var c wireChange
	var err error
	if c.Old, err = wireLimits(old); err != nil {
		return "", err
	}
	if c.New, err = wireLimits(new); err != nil {
		return "", err
	}
	text, err := json.Marshal(c)
	return string(text), err
}

// policy returns the policy of a record's limits: the same object for the same
// limits, as long as it is known.
func (f *family) policy(limits []wireLimit) (*weir.Policy, error) {
	list := make([]weir.Limit, len(limits))
	for i := range limits {
		var err error
		if list[i], err = limits[i].limit(); err != nil {
			return nil, err
		}
	}
	p, err := weir.NewPolicy(f.name, list...)
	if err != nil {
		return nil, err
	}
	print := fingerprint(p)
	if known := f.known[print]; known != nil {
		return known, nil
	}
	f.known[print] = p
	return p, nil
}

// inForce returns the policy that p means by now, going through every Set.
func (f *family) inForce(p *weir.Policy) (*weir.Policy, int) {
	sets := *f.sets.Load()
	version := 0
	for i := range sets {
		if sets[i].old.Same(p) {
			p = sets[i].new
		}
		version = sets[i].version
	}
	return p, version
}

// past returns, in JSON for do.lua, what was set behind a version up to another.
func (f *family) past(since, version int) []byte {
	b := fmt.Appendf(nil, `,"since":%d,"past":[`, since)
	first := true
	for _, s := range *f.sets.Load() {
		if s.version <= since || s.version > version {
			continue
		}
		n, err := f.store.newNumbers(s.new, f, s.version)
		if err != nil {
			continue // Set has refused it; another program may not have
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = fmt.Appendf(b, `[%d,%d,%d,%s]`, s.version, s.at, s.oldPrint, n.setText(s.at, nil))
	}
	return append(b, ']')
}

// Set puts new in force wherever old was, in every process that uses the same Redis
// and prefix. Keys' units in use are kept as of this instant; each key's are
// converted when the key is next asked for, so Set costs the same whatever the
// number of keys. What new cannot represent is then cut to the most that it can.
//
// Other processes learn of it by a push from the server, usually within a
// millisecond, and at the latest from the first row that was written under new.
func (s *Store) Set(ctx context.Context, old, new *weir.Policy) error {
	if old.Name() != new.Name() {
		return fmt.Errorf("redisstore: set: policies %q and %q have different names", old.Name(), new.Name())
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	f := s.familyOf(new.Name())
	if _, err := s.newNumbers(new, f, 0); err != nil {
		return err
	}
	ctx, cancel := s.withDeadline(ctx)
	defer cancel()
	if err := f.lock(ctx); err != nil {
		return err
	}
	defer f.unlock()
	for range maxTries {
		if f.stale.Load() {
			if err := f.loadLocked(ctx); err != nil {
				return err
			}
		}
		done, err := f.setLocked(ctx, old, new)
		if done || err != nil {
			return err
		}
		f.stale.Store(true) // somebody else was faster
	}
	return fmt.Errorf("redisstore: set: policy %q: others set it all the time", new.Name())
}

// setLocked adds to the record, unless that has changed since it was loaded.
func (f *family) setLocked(ctx context.Context, old, new *weir.Policy) (done bool, err error) {
	from, version := f.inForce(old)
	if from.Same(new) {
		return true, nil
	}
	body, err := changeText(from, new)
	if err != nil {
		return false, fmt.Errorf("redisstore: set: policy %q: %w", f.name, err)
	}
	args := []string{strconv.Itoa(version), f.store.nowText(), recordKept, body}
	reply, err := f.store.eval(ctx, setScript, []string{f.key}, args).AsStrSlice()
	if err != nil {
		f.stale.Store(true) // it may have been done
		return false, f.store.failed(err)
	}
	if reply[0] == "-1" {
		return false, nil
	}
	one, err := f.parseOne(strings.Join(append(reply, body), " "))
	if err != nil {
		return false, err
	}
	known := *f.sets.Load()
	sets := append(known[:len(known):len(known)], one)
	f.sets.Store(&sets)
	return true, nil
}
