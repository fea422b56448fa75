package memstore

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"slices"
	"sort"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
)

// ErrSnapshot is wrapped by errors of Load and ReadSnapshot about the file itself:
// it is damaged, truncated, of another version, or was written more than two hours
// later than the current time. The caller may start with an empty table.
var ErrSnapshot = errors.New("memstore: snapshot cannot be used")

func badSnapshot(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrSnapshot, fmt.Sprintf(format, args...))
}

// Load returns the table that Save wrote to a file. If there is no file, the
// error is fs.ErrNotExist.
func Load(file string, c Config) (*Table, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("memstore: %w", err)
	}
	defer f.Close()
	return ReadSnapshot(f, c)
}

// ReadSnapshot returns the table that WriteSnapshot wrote, with the units in use
// then less those replenished since. It implies Config.Snapshots. If there
// are more keys than MaxKeys, those with the least usage are dropped, and Stats counts them:
// first those that would admit one unit now. Reservations remain open, also beyond
// MaxHolds.
//
// The time of a table never goes back, not even across a restart. If the clock is behind
// the file, because it was set back, the table's time does not advance until the clock has
// caught up: used units stay used, no window begins twice, and calendar windows end
// by the clock. Until then nothing is replenished, so a wait may take longer than
// RetryAfter by as much as the clock was behind. If the clock was set forward, that counts as
// time that has passed: units are replenished for it.
//
// Replacements by Set are not restored: calls are decided by the limits of their policies
// again.
func ReadSnapshot(r io.Reader, c Config) (*Table, error) {
	c.Snapshots = true
	t, err := New(c)
	if err != nil {
		return nil, err
	}
	now := int64(t.now())
	l := &loader{t: t, r: bufio.NewReaderSize(r, 1<<16), clock: weir.Instant(now), now: now, session: &lockSession{t: t, now: now}, scratch: newBlock(1, 1, false)}
	defer l.unpin()
	if err := l.header(); err != nil {
		return nil, err
	}
	for !l.ended {
		if err := l.next(); err != nil {
			return nil, err
		}
	}
	if err := l.finish(); err != nil {
		return nil, err
	}
	return t, nil
}

// A loader fills a table from frames.
type loader struct {
	t       *Table
	r       *bufio.Reader
	clock   weir.Instant // the clock when loading began
	now     int64        // clock, or the file's time if that is later
	session *lockSession // puts all rows
	buf     bytes.Buffer
	at      int64 // bytes read
	frames  int
	ended   bool
	keys    bool // rows have their keys
	limits  []*compiledLimits
	holds   []loadedHold
	scratch block // whose words a row is read from
}

type loadedHold struct {
	limits     *compiledLimits
	h          uint64
	id         [16]byte
	hold       hold
	inOverflow bool
}

// frame reads a frame. The body is good until the next.
func (l *loader) frame() (kind byte, body []byte, err error) {
	var head [8]byte
	if _, err := io.ReadFull(l.r, head[:]); err != nil {
		return 0, nil, l.cut(err)
	}
	length := binary.LittleEndian.Uint32(head[:])
	if length == 0 || length > maxFrame {
		return 0, nil, badSnapshot("the frame at byte %d claims to have %d bytes", l.at, length)
	}
	l.buf.Reset() // it grows with what is there, not with what is said to be
	if _, err := io.CopyN(&l.buf, l.r, int64(length)); err != nil {
		return 0, nil, l.cut(err)
	}
	b := l.buf.Bytes()
	if crc32.Checksum(b, castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
		return 0, nil, badSnapshot("the frame at byte %d is damaged", l.at)
	}
	l.at += int64(len(head)) + int64(length)
	l.frames++
	return b[0], b[1:], nil
}

// cut returns the error for a file that ends too early, or cannot be read.
func (l *loader) cut(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return badSnapshot("it is cut short at byte %d", l.at)
	}
	return fmt.Errorf("memstore: snapshot: %w", err)
}

func (l *loader) damaged() error {
	return badSnapshot("the frame before byte %d is invalid", l.at)
}

// header reads the magic word and the first frame.
func (l *loader) header() error {
	start := make([]byte, len(magic))
	if _, err := io.ReadFull(l.r, start); err != nil {
		return l.cut(err)
	}
	if string(start) != magic {
		return badSnapshot("it does not begin as one")
	}
	l.at = int64(len(magic))
	kind, body, err := l.frame()
	if err != nil {
		return err
	}
	var version struct{ Version int }
	if kind != frameHeader || json.Unmarshal(body, &version) != nil {
		return l.damaged()
	}
	if version.Version != snapshotVersion {
		return badSnapshot("it is of version %d, and only version %d is understood", version.Version, snapshotVersion)
	}
	var h snapshotHeader
	if strictJSON(body, &h) != nil || len(h.HashKey) != 16 {
		return l.damaged()
	}
	return l.begin(h)
}

// begin makes the table one that the file's rows fit.
func (l *loader) begin(h snapshotHeader) error {
	if err := l.notBefore(h.Written); err != nil {
		return err
	}
	if l.t.keepKeys && !h.KeepKeys {
		return badSnapshot("it was written without full keys, which this table keeps")
	}
	l.keys = h.KeepKeys
	l.t.epoch = min(h.Epoch, weir.Instant(l.now).Add(maxEpochAhead))
	l.t.hash = keyedHasher([16]byte(h.HashKey))
	return nil
}

// notBefore makes the table's time begin no earlier than an instant in the file.
func (l *loader) notBefore(at weir.Instant) error {
	if ahead := at.Sub(l.clock); at > l.clock && (ahead > maxAhead || ahead < 0) {
		return badSnapshot("it was written at %s, %v from now; was the clock set back?", at.Time().Format(time.RFC3339), ahead.Round(time.Second))
	}
	if int64(at) > l.now {
		l.t.startAt(at)
		l.now, l.session.now = int64(at), int64(at)
	}
	return nil
}

// maxAhead is how far the clock may be behind a snapshot. The table's time does not advance
// until the clock has caught up, and beyond this, losing all usage is the lesser evil.
const maxAhead = 2 * time.Hour

func strictJSON(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("something follows")
	}
	return nil
}

// next reads a frame and does what it says.
func (l *loader) next() error {
	frames := l.frames
	kind, body, err := l.frame()
	if err != nil {
		return err
	}
	f := fields{data: body}
	switch kind {
	case frameLimits:
		return l.newCompiledLimits(body)
	case frameRows:
		for len(f.data) > 0 && !f.bad {
			l.row(&f)
		}
	case frameSpilled:
		l.spilled(&f)
	case frameOverflow:
		l.overflow(&f)
	case frameHold:
		l.hold(&f)
	case frameEnd:
		return l.end(&f, frames)
	default:
		f.bad = true
	}
	if f.bad {
		return l.damaged()
	}
	return nil
}

// end reads the last frame, before which there were so many.
func (l *loader) end(f *fields, frames int) error {
	l.ended = true
	if f.uint() != uint64(frames) {
		return l.damaged()
	}
	if len(f.data) == 0 { // an older file
		return nil
	}
	at, n := binary.Varint(f.data)
	if n != len(f.data) {
		return l.damaged()
	}
	return l.notBefore(weir.Instant(at))
}

func (l *loader) newCompiledLimits(body []byte) error {
	var s snapshotPolicy
	if strictJSON(body, &s) != nil {
		return l.damaged()
	}
	p, err := s.policyOf()
	if err != nil {
		return badSnapshot("a policy in it: %v", err)
	}
	n, err := l.t.register(p)
	if err != nil {
		return badSnapshot("%v", err)
	}
	l.limits = append(l.limits, n)
	return nil
}

func (l *loader) unpin() {
	for _, n := range l.limits {
		n.unpin()
	}
}

// A head is what rows begin with.
type head struct {
	limits *compiledLimits
	h      uint64
	key    string
}

func (l *loader) head(f *fields) (h head) {
	if i := f.uint(); i < uint64(len(l.limits)) {
		h.limits = l.limits[i]
	} else {
		f.bad = true
	}
	h.h = f.word()
	h.key = string(f.bytes(int(min(f.uint(), weir.MaxKeyBytes+1))))
	return h
}

// belongs says whether the hash is the key's.
func (l *loader) belongs(h head) bool { return h.h == l.t.hash.sum(h.key)^h.limits.of.salt }

// row puts a row of words into the table.
func (l *loader) row(f *fields) {
	h := l.head(f)
	if f.bad || h.limits.logged {
		f.bad = true
		return
	}
	if int(l.scratch.words) != h.limits.words {
		l.scratch = newBlock(h.limits.words, 1, false)
	}
	at := place{&l.scratch, 0}
	for i := range h.limits.words {
		word := f.word()
		f.bad = f.bad || word == algo.Mark
		at.block.word(0, i).Store(word)
	}
	first := at.block.word(0, 0).Load()
	if h.limits.isGCRA {
		f.bad = f.bad || first>>63 != 0
	}
	if f.bad {
		return
	}
	ledger := l.session.scratch()
	h.limits.load(ledger, at, first)
	l.put(h, ledger, f)
}

func (l *loader) spilled(f *fields) {
	h := l.head(f)
	if f.bad {
		return
	}
	ledger := &algo.Ledger{}
	if ledger.ReadBinary(h.limits.policy.Compiled().Rules, f.data) != nil {
		f.bad = true
		return
	}
	l.put(h, ledger, f)
}

// put puts a row into the table. Only the first of a key is one.
func (l *loader) put(h head, ledger *algo.Ledger, f *fields) {
	if f.bad = l.keys && !l.belongs(h); f.bad {
		return
	}
	if !l.t.keepKeys {
		h.key = ""
	}
	sh := &l.t.shards[h.h>>l.t.shift]
	if _, ok := l.t.lookLocked(sh, h.limits.of, h.h, h.key); ok {
		f.bad = true
		return
	}
	r := row{shard: sh, of: h.limits.of, h: h.h, key: h.key, limits: h.limits, ledger: ledger, scratch: ledger.Holds() == 0}
	if l.asAbsent(&r) {
		l.session.release(&r)
		return
	}
	if sh.rows() >= maxRows {
		l.trimShard(sh)
	}
	l.t.keys.Add(1)
	l.session.write(&r, l.session.newPlace(&r))
	if keys := l.t.keys.Load(); keys > l.t.maxKeys+l.t.maxKeys/4 {
		l.trim()
	}
}

// asAbsent says whether a row decides like none. One with nothing in use does,
// unless those who have none start with something in use.
func (l *loader) asAbsent(r *row) bool {
	return r.ledger.Unused(l.now) && r.ledger.Remembered() == 0 && l.t.absentUnused(r.limits, l.now)
}

func (l *loader) overflow(f *fields) {
	i := f.uint()
	if i >= uint64(len(l.limits)) || l.limits[i].of.overflow.Load() != nil {
		f.bad = true
		return
	}
	n, ledger := l.limits[i], &algo.Ledger{}
	if ledger.ReadBinary(n.policy.Compiled().Rules, f.data) != nil {
		f.bad = true
		return
	}
	n.pin()
	n.of.overflow.Store(&overflow{n, ledger})
}

func (l *loader) hold(f *fields) {
	h := l.head(f)
	id := f.bytes(16)
	local := f.uint()
	where := f.bytes(1)
	if f.bad || where[0] > 1 || len(f.data) > 0 || !l.belongs(h) {
		f.bad = true
		return
	}
	l.holds = append(l.holds, loadedHold{
		limits: h.limits, h: h.h, id: [16]byte(id), inOverflow: where[0] == 1,
		hold: hold{of: h.limits.of, key: h.key, id: local},
	})
}

// finish comes after the last frame.
func (l *loader) finish() error {
	switch _, err := l.r.ReadByte(); {
	case err == nil:
		return badSnapshot("something follows its end at byte %d", l.at)
	case err != io.EOF:
		return l.cut(err)
	}
	l.trim()
	for i := range l.t.shards {
		eachRow(&l.t.shards[i], l.heal)
	}
	for _, h := range l.holds {
		l.putHold(h)
	}
	return nil
}

// heal cuts a row's word down to what can be in use. That takes the time at the end of the
// file: the row may have been written any time before.
func (l *loader) heal(at place) {
	n, word := l.t.registry.at(at.block.idAt(at.slot)), at.block.word(at.slot, 0)
	if was := word.Load(); n.isGCRA && was != algo.Mark {
		word.Store(n.gcra.Heal(was, l.now))
	}
}

// trim drops rows beyond the table's MaxKeys.
func (l *loader) trim() {
	l.leaveLeast(l.t.keys.Load()-l.t.maxKeys, func(f func(place)) {
		for i := range l.t.shards {
			eachRow(&l.t.shards[i], f)
		}
	})
}

// trimShard drops rows beyond what a shard can have. A file is in the order of
// hashes: one of a larger table fills shard after shard, each with more rows than it
// will have in the end, long before the table has too many.
//
// Those that the table keeps are among the shardKept of their shards, of which it has
// meanRows at most on average: that is 10 standard deviations less.
func (l *loader) trimShard(sh *shard) {
	l.leaveLeast(int64(sh.rows()-shardKept), func(f func(place)) { eachRow(sh, f) })
}

// shardKept is less than maxRows, so that only every 128th row costs a look at them all.
const shardKept = maxRows - maxRows/8

// leaveLeast drops excess rows, those of the least worth.
func (l *loader) leaveLeast(excess int64, each func(func(place))) {
	if excess <= 0 {
		return
	}
	var worths []float64
	each(func(at place) { worths = append(worths, l.worth(at)) })
	slices.Sort(worths)
	least := worths[excess-1] // what is worth less goes, and as many of these as still must
	ties := excess - int64(sort.SearchFloat64s(worths, least))
	each(func(at place) {
		switch worth := l.worth(at); {
		case worth > least || worth == least && ties == 0:
			return
		case worth == least:
			ties--
		}
		l.leaveBehind(at)
	})
}

// eachRow calls f for every row of a shard.
func eachRow(sh *shard, f func(place)) {
	sh.blocks(func(b *block) {
		for slot := range int(b.slots) {
			if b.tag(slot).Load() >= firstTag {
				f(place{b, slot})
			}
		}
	})
}

// worth puts rows in order: by the share of their limit that is in use, then those
// that would refuse one unit, then those with open reservations.
func (l *loader) worth(at place) float64 {
	s, _, ok := l.t.usageLocked(at.block, at.slot, l.now)
	switch {
	case !ok:
		return math.Inf(1)
	case s.Full:
		return 1 + s.Share
	}
	return s.Share
}

func (l *loader) leaveBehind(at place) {
	s, word, _ := l.t.usageLocked(at.block, at.slot, l.now)
	l.t.retireLocked(at.block, at.slot, word)
	l.t.evicted.Add(1)
	l.t.forgiven.Add(uint64(s.Used))
}

// putHold notes a reservation, if its row is there.
func (l *loader) putHold(h loadedHold) {
	sh := &l.t.shards[h.h>>l.t.shift]
	if h.inOverflow {
		h.hold.overflow = h.limits.of.overflow.Load()
	} else if at, ok := l.t.lookLocked(sh, h.limits.of, h.h, h.hold.key); ok {
		h.hold.spilled = at.block.spilledAt(at.slot)
	}
	if h.hold.overflow == nil && h.hold.spilled == nil {
		return
	}
	ledger := (*algo.Ledger)(nil)
	if h.inOverflow {
		ledger = h.hold.overflow.ledger
	} else {
		ledger = h.hold.spilled.ledger
	}
	l.t.restoreHoldLocked(sh, h.id, h.hold, ledger)
}

// fields takes values from the front of data. Once it met something wrong, it
// returns zeros.
type fields struct {
	data []byte
	bad  bool
}

func (f *fields) bytes(n int) []byte {
	if f.bad || n > len(f.data) || n > weir.MaxKeyBytes {
		f.bad = true
		return make([]byte, min(n, weir.MaxKeyBytes))
	}
	b := f.data[:n]
	f.data = f.data[n:]
	return b
}

func (f *fields) word() uint64 { return binary.LittleEndian.Uint64(f.bytes(8)) }

func (f *fields) uint() uint64 {
	v, n := binary.Uvarint(f.data)
	if n <= 0 || f.bad {
		f.bad = true
		return 0
	}
	f.data = f.data[n:]
	return v
}

// maxEpochAhead is how far ahead of the clock the start of a table may lie, because the clock was set back. One that is
// further ahead is wrong, and would lock limits that start empty.
const maxEpochAhead = time.Minute
