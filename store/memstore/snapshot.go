package memstore

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weirlimit/weir"
)

// A snapshot is a table in a file, so that counters survive a restart.
//
// It begins with the magic word and continues in frames:
//
//	frame: length of the rest (4) | CRC-32C of the rest (4) | kind (1) | body
//
// The first is the header, the last the end, and in between every set of limits
// comes before the first row that is under it, and overflow rows before all
// others. A file without its end is refused, so a truncated file is never
// loaded as a smaller table. Rows are written shard by shard while decisions go
// on: each row and its reservations are as of one instant, different rows
// may be as of different instants, at most as far apart as writing took.
const (
	magic           = "weirsnap"
	snapshotVersion = 1
	maxFrame        = 64 << 20 // a row with many logs
)

// The kinds of frames.
const (
	frameHeader   = 'H' // JSON, see snapshotHeader
	frameLimits   = 'N' // JSON, see snapshotPolicy; the first is number 0
	frameRows     = 'R' // rows that are words: index of the limits, hash, key, words
	frameSpilled  = 'B' // one row that is a ledger: index of the limits, hash, key, ledger
	frameOverflow = 'O' // an overflow row: index of the limits, ledger
	frameHold     = 'L' // a reservation: index of the limits, hash, key, receipt id, hold id, whether in overflow
	frameEnd      = 'E' // how many frames came before, and when it was written, which older files lack
)

type snapshotHeader struct {
	Version  int          `json:"version"`
	Written  weir.Instant `json:"written"`
	Epoch    weir.Instant `json:"epoch"`
	HashKey  []byte       `json:"hash_key"`
	KeepKeys bool         `json:"keep_keys"`
}

type snapshotPolicy struct {
	Policy string          `json:"policy"`
	Limits []snapshotLimit `json:"limits"`
}

// A snapshotLimit is a limit without its OnError, which does not affect the state, and
// which the first writers of version 1 did not have.
type snapshotLimit struct {
	weir.Limit
	OnError weir.OnError `json:",omitempty"` // hides the limit's, and is never written
}

func newSnapshotPolicy(n *compiledLimits) snapshotPolicy {
	s := snapshotPolicy{Policy: n.of.text}
	for _, l := range n.policy.Limits() {
		s.Limits = append(s.Limits, snapshotLimit{Limit: l})
	}
	return s
}

// policyOf returns the policy that was written.
func (s *snapshotPolicy) policyOf() (*weir.Policy, error) {
	var limits []weir.Limit
	for _, l := range s.Limits {
		limits = append(limits, l.Limit)
	}
	return weir.NewPolicy(s.Policy, limits...)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrNoSnapshots is returned by WriteSnapshot and Save for a table that was made without
// Config.Snapshots.
var ErrNoSnapshots = errors.New("memstore: the table was made without Snapshots, and its hash cannot be written to a file")

// Save writes a snapshot to a file that only its owner can read, because it contains the key
// of the hash. It replaces an existing file only when all of the new one
// is on disk, so a process that dies meanwhile leaves the old one. Concurrent Saves run one
// after the other.
func (t *Table) Save(file string) (err error) {
	t.saving.Lock()
	defer t.saving.Unlock()
	tmp := file + ".tmp" // always the same, so that a crash leaves one at most
	f, err := createNew(tmp)
	if err != nil {
		return fmt.Errorf("memstore: snapshot: %w", err)
	}
	err = t.WriteSnapshot(f)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(tmp, file)
	}
	if err != nil {
		_ = os.Remove(tmp)
		return fmt.Errorf("memstore: snapshot: %w", err)
	}
	return syncDir(filepath.Dir(file))
}

// createNew creates a file that only its owner can read. It removes an existing file, which
// may be readable by others, or a link.
func createNew(file string) (*os.File, error) {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// syncDir makes a rename durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("memstore: snapshot: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("memstore: snapshot: %w", err)
	}
	return nil
}

// WriteSnapshot writes a snapshot.
func (t *Table) WriteSnapshot(w io.Writer) error {
	if !t.hash.keyed {
		return ErrNoSnapshots
	}
	key := t.hash.key()
	s := &snapshotWriter{t: t, w: bufio.NewWriterSize(w, 1<<16), index: map[*compiledLimits]uint64{}}
	s.text(magic)
	s.json(frameHeader, snapshotHeader{
		Version: snapshotVersion, Written: t.now(), Epoch: t.epoch, HashKey: key[:], KeepKeys: t.keepKeys,
	})
	s.overflows()
	for i := range t.shards {
		s.shard(&t.shards[i])
	}
	s.frame(frameEnd, binary.AppendVarint(binary.AppendUvarint(nil, uint64(s.frames)), int64(t.now())))
	if s.err == nil {
		s.err = s.w.Flush()
	}
	return s.err
}

// A snapshotWriter writes frames. After an error it writes nothing more.
type snapshotWriter struct {
	t      *Table
	w      *bufio.Writer
	err    error
	frames int
	index  map[*compiledLimits]uint64 // that have a frame, by their number
	queue  []queued                   // what a shard had, to be written when it is unlocked
	rows   []byte                     // the body of a frame of rows
}

// queued is a frame to be written.
type queued struct {
	kind byte
	body []byte
}

func (s *snapshotWriter) text(text string) {
	if s.err == nil {
		_, s.err = s.w.WriteString(text)
	}
}

func (s *snapshotWriter) frame(kind byte, body []byte) {
	var head [9]byte
	head[8] = kind
	binary.LittleEndian.PutUint32(head[:], uint32(len(body)+1))
	sum := crc32.Update(crc32.Checksum(head[8:], castagnoli), castagnoli, body)
	binary.LittleEndian.PutUint32(head[4:], sum)
	s.text(string(head[:]))
	if s.err == nil {
		_, s.err = s.w.Write(body)
	}
	s.frames++
}

func (s *snapshotWriter) json(kind byte, v any) {
	body, err := json.Marshal(v)
	if err != nil && s.err == nil {
		s.err = err
	}
	s.frame(kind, body)
}

// shard writes a shard's rows and reservations. It collects them under the lock
// and writes them after.
func (s *snapshotWriter) shard(sh *shard) {
	sh.mu.Lock()
	sh.blocks(func(b *block) {
		for slot := range int(b.slots) {
			if b.tag(slot).Load() >= firstTag {
				s.rowLocked(place{b, slot})
			}
		}
	})
	if sh.rest != nil {
		for id, h := range sh.rest.holds {
			s.holdLocked(sh, id, h)
		}
	}
	sh.mu.Unlock()
	s.flushRows()
	s.flushQueue()
}

// flushQueue writes what was collected.
func (s *snapshotWriter) flushQueue() {
	for _, q := range s.queue {
		s.frame(q.kind, q.body)
		if q.kind == frameRows {
			s.rows = q.body[:0] // to be filled again
		}
	}
	clear(s.queue)
	s.queue = s.queue[:0]
}

// rowLocked collects one row.
func (s *snapshotWriter) rowLocked(at place) {
	n := s.t.registry.at(at.block.idAt(at.slot))
	key := ""
	if at.block.keys != nil {
		key = at.block.keys[at.slot]
	}
	h := at.block.tag(at.slot).Load() ^ n.tag
	if x := at.block.spilledAt(at.slot); x != nil {
		body := s.head(nil, n, h, key)
		s.queue = append(s.queue, queued{frameSpilled, x.ledger.AppendBinary(body)})
		return
	}
	s.rows = s.head(s.rows, n, h, key)
	for i := range n.words {
		s.rows = binary.LittleEndian.AppendUint64(s.rows, at.block.word(at.slot, i).Load())
	}
	if len(s.rows) > rowsPerFrame {
		s.flushRows()
	}
}

// rowsPerFrame is about how many bytes of rows make a frame.
const rowsPerFrame = 1 << 16

// flushRows queues the rows collected so far as a frame.
func (s *snapshotWriter) flushRows() {
	if len(s.rows) > 0 {
		s.queue = append(s.queue, queued{frameRows, s.rows})
		s.rows = nil
	}
}

// head appends what rows begin with.
func (s *snapshotWriter) head(b []byte, n *compiledLimits, h uint64, key string) []byte {
	b = binary.AppendUvarint(b, s.indexOf(n))
	b = binary.LittleEndian.AppendUint64(b, h)
	return appendString(b, key)
}

func appendString(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// indexOf returns the index of a set of limits, and queues its frame if it has
// none yet.
func (s *snapshotWriter) indexOf(n *compiledLimits) uint64 {
	i, ok := s.index[n]
	if ok {
		return i
	}
	body, err := json.Marshal(newSnapshotPolicy(n))
	if err != nil && s.err == nil {
		s.err = err
	}
	i = uint64(len(s.index))
	s.index[n] = i
	s.queue = append(s.queue, queued{frameLimits, body})
	return i
}

// holdLocked collects a reservation, unless its row has gone. Those of overflow rows
// were collected with them.
func (s *snapshotWriter) holdLocked(sh *shard, id [16]byte, h hold) {
	hash := s.t.hash.sum(h.key) ^ h.of.salt
	at, ok := s.t.lookLocked(sh, h.of, hash, h.key)
	if h.overflow != nil || !ok || at.block.spilledAt(at.slot) != h.spilled {
		return
	}
	s.hold(s.t.registry.at(at.block.idAt(at.slot)), hash, id, h)
}

func (s *snapshotWriter) hold(n *compiledLimits, hash uint64, id [16]byte, h hold) {
	where := byte(0)
	if h.overflow != nil {
		where = 1
	}
	b := s.head(nil, n, hash, h.key)
	b = append(b, id[:]...)
	b = binary.AppendUvarint(b, h.id)
	s.queue = append(s.queue, queued{frameHold, append(b, where)})
}

// overflows writes the overflow rows and their reservations, which are in the
// shards of their keys. All shards are locked meanwhile, so that there is no
// reservation without a row, and none in a row that nobody could settle.
func (s *snapshotWriter) overflows() {
	s.t.registry.mu.Lock()
	if s.t.overflowedLocked() {
		for i := range s.t.shards {
			s.t.shards[i].mu.Lock()
		}
		s.overflowsLocked()
		for i := range s.t.shards {
			s.t.shards[i].mu.Unlock()
		}
	}
	s.t.registry.mu.Unlock()
	s.flushQueue()
}

// overflowedLocked says whether there is an overflow row. It requires registry.mu.
func (t *Table) overflowedLocked() bool {
	for _, nm := range t.registry.names {
		if nm.overflow.Load() != nil {
			return true
		}
	}
	return false
}

// overflowsLocked requires registry.mu and the locks of all shards.
func (s *snapshotWriter) overflowsLocked() {
	s.t.overflowMu.Lock()
	defer s.t.overflowMu.Unlock()
	for _, nm := range s.t.registry.names {
		if o := nm.overflow.Load(); o != nil {
			body := binary.AppendUvarint(nil, s.indexOf(o.limits))
			s.queue = append(s.queue, queued{frameOverflow, o.ledger.AppendBinary(body)})
		}
	}
	for i := range s.t.shards {
		if rest := s.t.shards[i].rest; rest != nil {
			s.overflowHoldsLocked(rest)
		}
	}
}

// overflowHoldsLocked collects a shard's reservations in overflow rows, but for
// those in rows that have gone since.
func (s *snapshotWriter) overflowHoldsLocked(r *rest) {
	for id, h := range r.holds {
		if h.overflow != nil && h.overflow == h.of.overflow.Load() {
			s.hold(h.overflow.limits, s.t.hash.sum(h.key)^h.of.salt, id, h)
		}
	}
}
