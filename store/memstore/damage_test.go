package memstore

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
)

// What is read from a file may be anything.

// A frame of a snapshot, with a checksum that is always right.
type frame struct {
	kind byte
	body []byte
}

// frames takes a snapshot apart.
func frames(t fataler, data []byte) (all []frame) {
	t.Helper()
	for data = data[len(magic):]; len(data) > 0; {
		n := 8 + binary.LittleEndian.Uint32(data)
		all = append(all, frame{data[8], data[9:n]})
		data = data[n:]
	}
	return all
}

// sealed puts a snapshot together. The end frame counts the others.
func sealed(all []frame) []byte {
	data := []byte(magic)
	for i, f := range all {
		if f.kind == frameEnd && len(f.body) == 1 {
			f.body = []byte{byte(i)}
		}
		body := append([]byte{f.kind}, f.body...)
		data = binary.LittleEndian.AppendUint32(data, uint32(len(body)))
		data = binary.LittleEndian.AppendUint32(data, crc32.Checksum(body, castagnoli))
		data = append(data, body...)
	}
	return data
}

// smallFile is a snapshot with frames of all kinds.
func smallFile(t testing.TB, c *clock) []byte {
	table, p := fullTable(t, c)
	take(t, table, p, "shared", 3)
	reserve(t, table, time.Minute, weir.Charge{Policy: p, Key: "held", Cost: 4})
	table = restart(t, table, Config{MaxKeys: 10, Now: c.Now})
	take(t, table, policy(t, "b", perHour(5)), "k", 1)
	reserve(t, table, time.Minute, weir.Charge{Policy: policy(t, "c", weir.Limit{Rate: 5, Per: weir.Every(time.Hour), Algorithm: weir.SlidingLog}), Key: "k", Cost: 1})
	return written(t, table)
}

func refused(t *testing.T, what string, data []byte, c *clock, want ...string) {
	t.Helper()
	table, err := ReadSnapshot(bytes.NewReader(data), Config{MaxKeys: 10, Now: c.Now})
	if !errors.Is(err, ErrSnapshot) || table != nil {
		t.Errorf("%s: %v, error %v", what, table, err)
		return
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %v, want %q", what, err, w)
		}
	}
}

func TestSmallFileHasEverything(t *testing.T) {
	c := newClock()
	data := smallFile(t, c)
	kinds := map[byte]int{}
	for _, f := range frames(t, data) {
		kinds[f.kind]++
	}
	for _, kind := range []byte{frameHeader, frameLimits, frameRows, frameSpilled, frameOverflow, frameHold, frameEnd} {
		if kinds[kind] == 0 {
			t.Errorf("no frame %c", kind)
		}
	}
	if !bytes.Equal(sealed(frames(t, data)), data) {
		t.Error("taken apart and put together it is another file")
	}
	restored(t, data, Config{MaxKeys: 10, Now: c.Now})
}

// A file with one byte changed, whichever and however, is no file.
func TestFlippedBits(t *testing.T) {
	c := newClock()
	data := smallFile(t, c)
	for i := range data {
		for _, flip := range []byte{byte(1 << (i % 8)), 0xff} {
			damaged := bytes.Clone(data)
			damaged[i] ^= flip
			refused(t, fmt.Sprintf("byte %d changed by %#x", i, flip), damaged, c)
		}
	}
}

func TestCutShort(t *testing.T) {
	c := newClock()
	data := smallFile(t, c)
	for n := range data {
		refused(t, "cut", data[:n], c, "cut short at byte")
	}
	all := frames(t, data)
	refused(t, "without its end", sealed(all[:len(all)-1]), c, "cut short")
	for i := 1; i < len(all)-1; i++ { // cut out of the middle
		some := append(bytes.Clone(sealed(all[:i])), sealedEnd(t, data, i+1)...)
		refused(t, "a frame is missing", some, c)
	}
}

// sealedEnd returns a file from frame i on, as it is.
func sealedEnd(t *testing.T, data []byte, i int) []byte {
	return data[len(sealed(frames(t, data)[:i])):]
}

func TestWrongFiles(t *testing.T) {
	c := newClock()
	data := smallFile(t, c)
	header := func(change func(*snapshotHeader)) []byte {
		all := frames(t, data)
		var h snapshotHeader
		if err := json.Unmarshal(all[0].body, &h); err != nil {
			t.Fatal(err)
		}
		change(&h)
		all[0].body, _ = json.Marshal(h)
		return sealed(all)
	}
	refused(t, "nothing", nil, c, "cut short at byte 0")
	refused(t, "text", []byte("# a snapshot\n"), c, "does not begin as one")
	refused(t, "older", header(func(h *snapshotHeader) { h.Version = 0 }), c, "version 0, and only version 1")
	refused(t, "newer", header(func(h *snapshotHeader) { h.Version = 2 }), c, "version 2, and only version 1")
	refused(t, "hash key", header(func(h *snapshotHeader) { h.HashKey = h.HashKey[1:] }), c, "is invalid")
	refused(t, "twice", append(bytes.Clone(data), data...), c, "something follows its end")
	refused(t, "one more byte", append(bytes.Clone(data), 0), c, "something follows its end")
	restored(t, header(func(h *snapshotHeader) { h.Written = c.Now().Add(maxAhead) }), Config{Now: c.Now})
	refused(t, "the future", header(func(h *snapshotHeader) { h.Written = c.Now().Add(maxAhead + 1) }), c, "2h0m0s from now; was the clock set back?")
	refused(t, "the end of time", header(func(h *snapshotHeader) { h.Written = 1<<63 - 1 }), c)
	newer := frames(t, data)
	newer[0].body = []byte(`{"version":2,"compressed":"zstd"}`)
	refused(t, "much newer", sealed(newer), c, "version 2, and only version 1")
	c.pass(-maxAhead - 1)
	refused(t, "the clock was set back", data, c, "was the clock set back?")
}

// Frames whose checksums are right and that no table writes.
func TestNonsense(t *testing.T) {
	c := newClock()
	all := frames(t, smallFile(t, c))
	first := map[byte]int{}
	for i := len(all) - 1; i >= 0; i-- {
		first[all[i].kind] = i
	}
	body := func(kind byte, change func([]byte) []byte) []byte {
		some := append([]frame{}, all...)
		f := &some[first[kind]]
		f.body = change(bytes.Clone(f.body))
		return sealed(some)
	}
	insert := func(at int, f ...frame) []byte {
		return sealed(append(append(append([]frame{}, all[:at]...), f...), all[at:]...))
	}
	set := func(i int, v byte) func([]byte) []byte { return func(b []byte) []byte { b[i] = v; return b } }
	cut := func(b []byte) []byte { return b[:len(b)-1] }
	more := func(b []byte) []byte { return append(b, 0) }
	last := len(all) - 1
	for what, data := range map[string][]byte{
		"no header":          sealed(all[1:]),
		"a second header":    insert(1, all[0]),
		"unknown kind":       insert(last, frame{'?', nil}),
		"rows first":         insert(1, all[first[frameRows]]),
		"a hold first":       insert(1, all[first[frameHold]]),
		"rows twice":         insert(last, all[first[frameRows]]),
		"spilled twice":      insert(last, all[first[frameSpilled]]),
		"overflow twice":     insert(last, all[first[frameOverflow]]),
		"no policy":          insert(last, frame{frameLimits, []byte(`{"policy":"x","limits":[]}`)}),
		"a bad policy":       insert(last, frame{frameLimits, []byte(`{"policy":"x","limits":[{"Rate":0,"Per":"1s"}]}`)}),
		"a bad zone":         insert(last, frame{frameLimits, []byte(`{"policy":"x","limits":[{"Rate":1,"Per":"day in Nowhere"}]}`)}),
		"an unknown field":   insert(last, frame{frameLimits, []byte(`{"policy":"x","limits":[{"Rate":1,"Per":"1s","Shadow":true}]}`)}),
		"not JSON":           insert(last, frame{frameLimits, []byte(`{`)}),
		"two objects":        insert(last, frame{frameLimits, []byte(`{"policy":"x","limits":[{"Rate":1,"Per":"1s"}]}{}`)}),
		"limits of rows":     body(frameRows, set(0, 99)),
		"limits of spilled":  body(frameSpilled, set(0, 99)),
		"limits of overflow": body(frameOverflow, set(0, 99)),
		"limits of a hold":   body(frameHold, set(0, 99)),
		"rows cut":           body(frameRows, cut),
		"spilled cut":        body(frameSpilled, cut),
		"overflow cut":       body(frameOverflow, cut),
		"hold cut":           body(frameHold, cut),
		"rows and more":      body(frameRows, more),
		"spilled and more":   body(frameSpilled, more),
		"overflow and more":  body(frameOverflow, more),
		"hold and more":      body(frameHold, more),
		"another's hold":     body(frameHold, set(2, 99)), // a hash that is not the key's
		"a long key":         body(frameRows, func(b []byte) []byte { return append(b[:9], 0xff, 0xff, 0xff, 0xff, 0xff, 0x01) }),
		"the end says more":  body(frameEnd, func(b []byte) []byte { return []byte{99, 0} }),
		"the end says less":  body(frameEnd, func(b []byte) []byte { return []byte{0x80, 0} }),
	} {
		refused(t, what, data, c)
	}
}

// poisoned returns a snapshot whose only row, under a limit, has another word.
func poisoned(t *testing.T, c *clock, l weir.Limit, word uint64) (data []byte, p *weir.Policy) {
	table := newTable(t, Config{Snapshots: true, Now: c.Now})
	p = policy(t, "p", l)
	take(t, table, p, "k", 1)
	all := frames(t, written(t, table))
	rows := all[2].body
	binary.LittleEndian.PutUint64(rows[len(rows)-8:], word)
	return sealed(all), p
}

// A state that no table writes is healed where it would hold a key up for ever, and
// refused where it would be taken for a mark.
func TestPoisonedWords(t *testing.T) {
	c := newClock()
	rate := weir.Limit{Rate: 10, Per: weir.Every(time.Second), MaxDebt: 5}
	for _, word := range []uint64{1<<63 - 1, 1 << 62} {
		data, p := poisoned(t, c, rate, word)
		table := restored(t, data, Config{Now: c.Now})
		if d := take(t, table, p, "k", 1); d.Allowed || d.RetryAfter != 600*time.Millisecond {
			t.Errorf("%#x: %+v, want to wait until 15 units are paid off", word, d)
		}
	}
	window := weir.Limit{Rate: 10, Per: weir.Every(time.Second), Algorithm: weir.DualWindow}
	for _, l := range []weir.Limit{rate, window} {
		data, _ := poisoned(t, c, l, algo.Mark)
		refused(t, "the mark", data, c)
	}
	data, _ := poisoned(t, c, rate, 1<<63)
	refused(t, "bit 63", data, c)
}

// A file that says it is huge costs no more than what is there.
func TestAbsurdLengths(t *testing.T) {
	c := newClock()
	start := sealed(frames(t, smallFile(t, c))[:1])
	for _, length := range []uint32{0, maxFrame, maxFrame + 1, 1 << 31, 1<<32 - 1} {
		data := binary.LittleEndian.AppendUint32(bytes.Clone(start), length)
		data = append(data, make([]byte, 100)...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		refused(t, "absurd", data, c)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
			t.Errorf("a frame of %d bytes that are not there cost %d", length, n)
		}
	}
}

// A file that cannot be read is not a bad file.
func TestReadErrors(t *testing.T) {
	c := newClock()
	data := smallFile(t, c)
	broken := errors.New("broken")
	for n := range len(data) + 1 {
		r := io.MultiReader(bytes.NewReader(data[:n]), iotest.ErrReader(broken))
		if _, err := ReadSnapshot(r, Config{MaxKeys: 10, Now: c.Now}); !errors.Is(err, broken) || errors.Is(err, ErrSnapshot) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
	if _, err := ReadSnapshot(iotest.OneByteReader(bytes.NewReader(data)), Config{Now: c.Now}); err != nil {
		t.Errorf("byte by byte: %v", err)
	}
}

// A writer that fails is an error, wherever it does.
func TestWriteErrors(t *testing.T) {
	c := newClock()
	data := smallFile(t, c)
	table := restored(t, data, Config{MaxKeys: 10, Now: c.Now})
	broken := errors.New("broken")
	for n := range data {
		if err := table.WriteSnapshot(&failing{left: n, err: broken}); !errors.Is(err, broken) {
			t.Fatalf("after %d bytes: %v", n, err)
		}
	}
}

// failing takes so many bytes.
type failing struct {
	left int
	err  error
}

func (f *failing) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, f.err
	}
	return len(b), nil
}

// FuzzReadSnapshot: whatever is read as a table is one, can be used, and can be
// written and read again.
func FuzzReadSnapshot(f *testing.F) {
	all := frames(f, smallFile(f, newClock()))
	f.Add(sealed(all))
	for i := 1; i < len(all)-1; i++ { // smaller ones are sooner understood
		f.Add(sealed([]frame{all[0], all[1], all[i], all[len(all)-1]}))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		readAnything(t, data)
		readAnything(t, resealed(data))
	})
}

// readAnything says whether data was taken for a table.
func readAnything(t *testing.T, data []byte) bool {
	t.Helper()
	c := newClock()
	c.pass(10 * time.Second)
	config := Config{MaxKeys: 50, Now: c.Now}
	table, err := ReadSnapshot(bytes.NewReader(data), config)
	if err != nil {
		if !errors.Is(err, ErrSnapshot) || table != nil {
			t.Fatalf("%v, error %v: %q", table, err, data)
		}
		return false
	}
	useAll(t, table)
	if _, err := ReadSnapshot(bytes.NewReader(written(t, table)), config); err != nil {
		t.Fatalf("%v: %q", err, data)
	}
	return true
}

// TestMutatedFrames is the same for those who do not fuzz.
func TestMutatedFrames(t *testing.T) {
	all := frames(t, smallFile(t, newClock()))
	taken := 0
	for seed := range uint64(short(500, 50_000)) {
		r := rand.New(rand.NewPCG(seed, 1))
		if readAnything(t, sealed(mutated(r, all))) {
			taken++
		}
	}
	t.Logf("%d were taken for a table", taken)
}

// mutated returns frames with one of them changed, doubled, moved or left out.
func mutated(r *rand.Rand, all []frame) []frame {
	some := slices.Clone(all)
	i := 1 + r.IntN(len(some)-2)
	body := slices.Clone(some[i].body)
	switch at := r.IntN(len(body)); r.IntN(8) {
	case 0:
		some = slices.Insert(some, i, some[1+r.IntN(len(some)-2)])
	case 1:
		some = slices.Delete(some, i, i+1)
	case 2:
		some[i].kind = some[1+r.IntN(len(some)-2)].kind
	case 3:
		some[i].body = slices.Insert(body, at, byte(r.Uint32()))
	case 4:
		some[i].body = slices.Delete(body, at, at+1)
	case 5: // digits of JSON
		some[i].body = bytes.Replace(body, []byte("0"), []byte(fmt.Sprint(r.IntN(100))), 1)
	default:
		body[at] = byte(r.Uint32())
		some[i].body = body
	}
	return some
}

// resealed makes frames of anything, with the right checksums and an end, so that
// what is in them is looked at.
func resealed(data []byte) []byte {
	var all []frame
	for data = data[min(len(magic), len(data)):]; len(data) > 8; {
		n := 8 + min(max(1, int(binary.LittleEndian.Uint32(data))), len(data)-8)
		if data[8] != frameEnd {
			all = append(all, frame{data[8], data[9:n]})
		}
		data = data[n:]
	}
	if len(all) > 127 {
		all = all[:127]
	}
	return sealed(append(all, frame{frameEnd, []byte{0}}))
}

// useAll does everything with a table that may say anything.
func useAll(t *testing.T, table *Table) {
	var policies []*weir.Policy
	for _, nm := range table.registry.names {
		for _, sets := range nm.sets {
			for _, n := range sets {
				policies = append(policies, n.policy)
			}
		}
	}
	var receipts [][16]byte
	for i := range table.shards {
		if rest := table.shards[i].rest; rest != nil {
			for id := range rest.holds {
				receipts = append(receipts, id)
			}
		}
	}
	for _, p := range policies {
		for _, key := range []string{"k", "held", "x", ""} {
			use(t, table, weir.Charge{Policy: p, Key: key, Cost: 1}, receipts)
		}
	}
}

// use does everything with one key. Some of it is an error, as it may be.
func use(t *testing.T, table *Table, c weir.Charge, receipts [][16]byte) {
	for _, op := range []weir.Op{weir.PeekEach, weir.TakeEach, weir.TakeAll, weir.ReserveAll, weir.ResetEach} {
		b := &weir.Batch{Op: op, Charges: []weir.Charge{c}}
		if err := table.Do(background(), b); err != nil {
			continue
		}
		if d := b.Decisions[0]; d.Remaining < 0 || d.Remaining > d.Limit {
			t.Fatalf("%+v", d)
		}
	}
	for _, id := range receipts[:min(len(receipts), 10)] {
		for _, op := range []weir.Op{weir.Renew, weir.Settle} {
			_ = table.Do(background(), &weir.Batch{Op: op, Charges: []weir.Charge{c}, Receipts: []weir.Receipt{{ID: id}}})
		}
	}
}
