package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/storeapi"
)

// A history is the policy history of one name: which limits were replaced by which others,
// and when.
//
// Redis has the history as a list, the record (see set.lua). The number of changes over all
// time is the history's version, and every row has the version under which it was written.
// A row of an older version is converted when it is next used, as of the instants
// of the changes since. A row of a later version shows a process that its history is out of
// date. Usually the process knows that already, because the server notifies it when a
// record is written.
type history struct {
	name  string // set by historyOf, like the next two
	key   string
	store *Store

	stale atomic.Bool // the record has probably changed since it was loaded

	loaded  atomic.Int64             // when, in ns of the process's clock
	changes atomic.Pointer[[]change] // in order; replaced by whoever holds the lock, never modified
	first   atomic.Int64             // the version when the record was first loaded; -1 before that

	locked chan struct{}           // a lock with a timeout: full while it is held; guards the record and the fields below
	known  map[uint64]*weir.Policy // the policies of changes, by fingerprint
	tries  atomic.Int64            // attempts to load the record; read without the lock
	err    error                   // of the last attempt

	mu    sync.Mutex       // guards the field below
	noted map[uint64]noted // the limits last known to be in force, by the fingerprint of the callers' limits
}

// A change is one Set.
type change struct {
	version  int
	at       int64 // µs
	old, new *weir.Policy
	oldPrint uint64
	by       string // the id of the Store that made it; "" if an earlier release did
	text     string // as it is in Redis
}

// recordAge is the age at which a record is loaded again without a notification, since
// notifications may be lost with a connection.
const recordAge = 10 * time.Second

// historyOf returns the history of a name.
func (s *Store) historyOf(name string) *history {
	if h, ok := s.histories.Load(name); ok {
		return h.(*history)
	}
	name = strings.Clone(name)
	h := &history{name: name, key: s.setKey(name), store: s, locked: make(chan struct{}, 1), known: map[uint64]*weir.Policy{}}
	h.changes.Store(&[]change{})
	h.first.Store(-1)
	h.stale.Store(true)
	was, _ := s.histories.LoadOrStore(name, h)
	return was.(*history)
}

// version returns the number of changes that are known.
func (h *history) version() int {
	changes := *h.changes.Load()
	if len(changes) == 0 {
		return 0
	}
	return changes[len(changes)-1].version
}

// lock acquires the lock, unless ctx ends first.
func (h *history) lock(ctx context.Context) error {
	select {
	case h.locked <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *history) unlock() { <-h.locked }

// refresh loads the record if it may have changed. Of concurrent callers one loads it; if
// that fails, the others return the same error.
func (h *history) refresh(ctx context.Context) error {
	before := h.tries.Load()
	if err := h.lock(ctx); err != nil {
		return err
	}
	defer h.unlock()
	if !h.mayHaveChanged(weir.Now()) {
		return nil
	}
	if h.err != nil && h.tries.Load() != before {
		return h.err
	}
	return h.loadLocked(ctx)
}

func (h *history) mayHaveChanged(now weir.Instant) bool {
	return h.stale.Load() || now.Sub(weir.Instant(h.loaded.Load())) > recordAge
}

// loadLocked loads the record. A failure is an error only if the record is stale; if the
// record is merely old, the known changes remain in use.
func (h *history) loadLocked(ctx context.Context) error {
	stale := h.stale.Swap(false) // before reading: a later change makes it stale again
	h.loaded.Store(int64(weir.Now()))
	h.err = h.readLocked(ctx)
	h.tries.Add(1)
	if h.err == nil || !stale {
		return nil
	}
	h.stale.Store(true)
	return h.err
}

// readLocked reads the record. If Redis has lost changes that this process knows, they are
// written again.
func (h *history) readLocked(ctx context.Context) error {
	texts, err := h.store.ask(ctx, h.store.client.B().Lrange().Key(h.key).Start(0).Stop(-1).Build()).AsStrSlice()
	if err != nil {
		return h.unread(err)
	}
	changes, err := h.parse(texts)
	if err != nil {
		return err
	}
	last := 0
	if len(changes) > 0 {
		last = changes[len(changes)-1].version
	}
	h.first.CompareAndSwap(-1, int64(last))
	if last < h.version() {
		return h.restoreLocked(ctx, last)
	}
	h.changes.Store(&changes)
	return nil
}

func (h *history) restoreLocked(ctx context.Context, last int) error {
	args := []string{strconv.Itoa(last), recordKept}
	for _, c := range *h.changes.Load() {
		if c.version > last {
			args = append(args, c.text)
		}
	}
	if err := h.store.eval(ctx, restoreScript, []string{h.key}, args).Error(); err != nil {
		return h.unread(err)
	}
	return nil
}

// unread returns why the record could not be loaded. It is never weir.ErrUnknown, since
// nothing was charged.
func (h *history) unread(err error) error {
	if isState(err) {
		return stateError(fmt.Errorf("%s: %w", h.key, err))
	}
	return fmt.Errorf("redisstore: %w: %s: %w", weir.ErrUnavailable, h.key, err)
}

// recordKept is for how long a record is kept after its last change, and the epoch after the last
// start of a process, in ms: 400 days.
const recordKept = "34560000000"

// parse reads a record.
func (h *history) parse(texts []string) ([]change, error) {
	changes := make([]change, 0, len(texts))
	for _, text := range texts {
		c, err := h.parseOne(text)
		if err != nil {
			return nil, stateError(fmt.Errorf("%s in Redis is not what weir writes there: %w", h.key, err))
		}
		changes = append(changes, c)
	}
	return changes, nil
}

func (h *history) parseOne(text string) (change, error) {
	for _, c := range *h.changes.Load() { // known changes keep their policies
		if c.text == text {
			return c, nil
		}
	}
	version, rest, _ := strings.Cut(text, " ")
	at, body, _ := strings.Cut(rest, " ")
	c := change{text: text}
	var err error
	if c.version, err = strconv.Atoi(version); err != nil {
		return change{}, err
	}
	if c.at, err = strconv.ParseInt(at, 10, 64); err != nil {
		return change{}, err
	}
	var wire wireChange
	if err = json.Unmarshal([]byte(body), &wire); err != nil {
		return change{}, err
	}
	if c.old, err = h.policy(wire.Old); err != nil {
		return change{}, err
	}
	c.new, err = h.policy(wire.New)
	c.oldPrint, c.by = fingerprint(c.old), wire.By
	return c, err
}

// wireChange is a change as records have it.
type wireChange struct {
	Old []wireLimit `json:"old"`
	New []wireLimit `json:"new"`
	By  string      `json:"by,omitempty"` // Store.id
}

func changeText(old, new *weir.Policy, by string) (string, error) {
	c := wireChange{By: by}
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
func (h *history) policy(limits []wireLimit) (*weir.Policy, error) {
	list := make([]weir.Limit, len(limits))
	for i := range limits {
		var err error
		if list[i], err = limits[i].limit(); err != nil {
			return nil, err
		}
	}
	p, err := weir.NewPolicy(h.name, list...)
	if err != nil {
		return nil, err
	}
	print := fingerprint(p)
	if known := h.known[print]; known != nil {
		return known, nil
	}
	h.known[print] = p
	return p, nil
}

// inForce returns the policy in force for calls with p, the last change that replaced p or
// nil, and the history's version.
func (h *history) inForce(p *weir.Policy) (in *weir.Policy, last *change, version int) {
	changes := *h.changes.Load()
	for i := range changes {
		if changes[i].old.Same(p) {
			last = &changes[i]
			p = last.new
		}
		version = changes[i].version
	}
	return p, last, version
}

// past returns, in JSON for do.lua, the changes after a version up to another.
func (h *history) past(since, version int) []byte {
	b := fmt.Appendf(nil, `,"since":%d,"past":[`, since)
	first := true
	for _, c := range *h.changes.Load() {
		if c.version <= since || c.version > version {
			continue
		}
		n, err := h.store.compileLimits(c.new, h, c.version)
		if err != nil {
			continue // not written by this package's Set, which would have refused it
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = fmt.Appendf(b, `[%d,%d,%d,%s]`, c.version, c.at, c.oldPrint, n.setText([]int64{c.at}, nil))
	}
	return append(b, ']')
}

// Set puts new in force wherever old was, in every process that uses the same Redis
// and prefix. Keys' units in use are kept as of this instant; each key's are
// converted when the key is next used, so Set costs the same whatever the
// number of keys. Units in use beyond what new can represent are dropped.
//
// The newest change wins, and only a Set is a change. A process that starts, or uses old limits
// again, changes nothing: if its limits were replaced, the replacement decides its calls,
// for up to 400 days after the last change, and Config.OnReplaced reports it. Set(ctx, p, p)
// puts p in force again wherever it was replaced; if it was not, that does nothing.
// Limits that no Set has replaced decide the calls that use them: two processes with
// different limits under one name, as in a rolling deployment, share the counters, and each
// decides by its own limits.
//
// Other processes receive a change by a push from the server, usually within a
// millisecond, and at the latest with the first row that was written under new.
func (s *Store) Set(ctx context.Context, old, new *weir.Policy) error {
	if err := storeapi.CheckSet(old, new); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	h := s.historyOf(new.Name())
	if _, err := s.compileLimits(new, h, 0); err != nil {
		return err
	}
	ctx, cancel := s.withDeadline(ctx)
	defer cancel()
	if err := h.lock(ctx); err != nil {
		return err
	}
	defer h.unlock()
	for range maxTries {
		if h.mayHaveChanged(weir.Now()) {
			if err := h.loadLocked(ctx); err != nil {
				return err
			}
		}
		done, err := h.setLocked(ctx, old, new)
		if done {
			h.noteOwn(old, new)
		}
		if done || err != nil {
			return err
		}
		h.stale.Store(true) // another process was faster
	}
	return fmt.Errorf("redisstore: set: policy %q: other processes keep changing it", new.Name())
}

// setLocked adds to the record, unless that has changed since it was loaded.
func (h *history) setLocked(ctx context.Context, old, new *weir.Policy) (done bool, err error) {
	from, _, version := h.inForce(old)
	if from.Same(new) {
		return true, nil
	}
	body, err := changeText(from, new, h.store.id)
	if err != nil {
		return false, fmt.Errorf("redisstore: set: policy %q: %w", h.name, err)
	}
	args := []string{strconv.Itoa(version), h.store.nowText(), recordKept, body}
	reply, err := h.store.eval(ctx, setScript, []string{h.key}, args).AsStrSlice()
	if err != nil {
		h.stale.Store(true) // it may have been done
		return false, h.store.failed(err)
	}
	if reply[0] == "-1" {
		return false, nil
	}
	one, err := h.parseOne(strings.Join(append(reply, body), " "))
	if err != nil {
		return false, err
	}
	known := *h.changes.Load()
	changes := append(known[:len(known):len(known)], one)
	h.changes.Store(&changes)
	return true, nil
}
