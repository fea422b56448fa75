package memstore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"math"
	"math/bits"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/weirlimit/weir"
)

// slowSip is SipHash-c-d as its paper writes it, round by round.
func slowSip(c, d int, key [16]byte, in string) uint64 {
	k0, k1 := binary.LittleEndian.Uint64(key[:]), binary.LittleEndian.Uint64(key[8:])
	v := [4]uint64{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	rounds := func(n int) {
		for range n {
			v[0] += v[1]
			v[2] += v[3]
			v[1] = bits.RotateLeft64(v[1], 13) ^ v[0]
			v[3] = bits.RotateLeft64(v[3], 16) ^ v[2]
			v[0] = bits.RotateLeft64(v[0], 32)
			v[2] += v[1]
			v[0] += v[3]
			v[1] = bits.RotateLeft64(v[1], 17) ^ v[2]
			v[3] = bits.RotateLeft64(v[3], 21) ^ v[0]
			v[2] = bits.RotateLeft64(v[2], 32)
		}
	}
	padded := append([]byte(in), make([]byte, 7-len(in)%8)...)
	padded = append(padded, byte(len(in)))
	for ; len(padded) > 0; padded = padded[8:] {
		m := binary.LittleEndian.Uint64(padded)
		v[3] ^= m
		rounds(c)
		v[0] ^= m
	}
	v[2] ^= 0xff
	rounds(d)
	return v[0] ^ v[1] ^ v[2] ^ v[3]
}

// The slow one gives what the paper prints for SipHash-2-4, and the table's
// SipHash-1-3 is the slow one with fewer rounds.
func TestSipHash(t *testing.T) {
	var key [16]byte
	in := make([]byte, 15)
	for i := range key {
		key[i] = byte(i)
	}
	for i := range in {
		in[i] = byte(i)
	}
	if got := slowSip(2, 4, key, string(in)); got != 0xa129ca6149be45e5 {
		t.Fatalf("SipHash-2-4 of the paper's example is %x", got)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for n := range weir.MaxKeyBytes + 1 {
		for i := range key {
			key[i] = byte(r.Uint32())
		}
		text := make([]byte, n)
		for i := range text {
			text[i] = byte(r.Uint32())
		}
		h := keyedHasher(key)
		if got, want := h.sum(string(text)), slowSip(1, 3, key, string(text)); got != want {
			t.Fatalf("%d bytes: %x, want %x", n, got, want)
		}
		if h.key() != key {
			t.Fatalf("the key comes back as %x, want %x", h.key(), key)
		}
	}
}

// multicollision returns 2^n keys that a 32-bit hash cannot tell apart, if it works
// through its input with step. It finds n pairs of colliding blocks, one after the
// other, and combines them in every way (Joux, 2004). Whoever knows an unseeded hash
// can do that in no time.
func multicollision(n int, state uint32, step func(state uint32, block []byte) uint32) []string {
	keys := []string{""}
	var a, b string
	for i := range n {
		if i == 0 || step(state, []byte(a)) != step(state, []byte(b)) { // CRC-32 never tells these two apart
			a, b = collision(state, step)
		}
		next := make([]string, 0, 2*len(keys))
		for _, k := range keys {
			next = append(next, k+a, k+b)
		}
		keys, state = next, step(state, []byte(a))
	}
	return keys
}

// collision returns two blocks after which the state is the same.
func collision(state uint32, step func(uint32, []byte) uint32) (a, b string) {
	type entry struct {
		sum   uint32
		block [8]byte // of which five are used
	}
	seen := make([]entry, 1<<18) // by the high bits of the sum
	for i := uint64(1); i < 1<<32; i++ {
		var e entry
		binary.LittleEndian.PutUint64(e.block[:], i*0x9e3779b97f4a7c15)
		e.sum = step(state, e.block[:5])
		was := &seen[e.sum>>14]
		if was.sum == e.sum && was.block != [8]byte{} {
			return string(was.block[:5]), string(e.block[:5])
		}
		*was = e
	}
	panic("five bytes have no collision in 32 bits")
}

const craftedBits = 10

// The keys that FNV-1a and CRC-32 cannot tell apart.
var (
	equalFNV = sync.OnceValue(func() []string {
		return multicollision(craftedBits, 2166136261, func(h uint32, block []byte) uint32 {
			for _, b := range block {
				h = (h ^ uint32(b)) * 16777619
			}
			return h
		})
	})
	equalCRC = sync.OnceValue(func() []string {
		return multicollision(craftedBits, 0, func(h uint32, block []byte) uint32 { return crc32.Update(h, crc32.IEEETable, block) })
	})
)

func fnv1a(b []byte) uint32 {
	h := fnv.New32a()
	_, _ = h.Write(b)
	return h.Sum32()
}

// The crafted keys are what they are said to be.
func TestCraftedKeysCollide(t *testing.T) {
	sums := map[string]map[uint32]bool{"FNV-1a": {}, "CRC-32": {}}
	keys := map[string]bool{}
	for i := range equalFNV() {
		sums["FNV-1a"][fnv1a([]byte(equalFNV()[i]))] = true
		sums["CRC-32"][crc32.ChecksumIEEE([]byte(equalCRC()[i]))] = true
		keys[equalFNV()[i]] = true
	}
	for name, s := range sums {
		if len(s) != 1 || len(keys) != 1<<craftedBits {
			t.Errorf("%s gives %d sums; there are %d keys", name, len(s), len(keys))
		}
	}
}

// craftedKeys are sets of keys by which someone may try to meet in one shard.
func craftedKeys() map[string][]string {
	const n = 1 << craftedBits
	made := func(f func(i int) string) []string {
		keys := make([]string, n)
		for i := range keys {
			keys[i] = f(i)
		}
		return keys
	}
	word := func(i uint64) string { return string(binary.BigEndian.AppendUint64(nil, i)) }
	return map[string][]string{
		"equal under FNV-1a":   equalFNV(),
		"equal under CRC-32":   equalCRC(),
		"numbers":              made(func(i int) string { return fmt.Sprint(i) }),
		"words":                made(func(i int) string { return word(uint64(i)) }),
		"words, high bits":     made(func(i int) string { return word(uint64(i) << 50) }),
		"a long prefix":        made(func(i int) string { return strings.Repeat("x", 200) + fmt.Sprint(i) }),
		"a long suffix":        made(func(i int) string { return fmt.Sprint(i) + strings.Repeat("x", 200) }),
		"addresses":            made(func(i int) string { return fmt.Sprintf("10.0.%d.%d", i>>8, i&255) }),
		"zeros, more and more": made(func(i int) string { return strings.Repeat("\x00", i%200) + word(uint64(i/200)) }),
	}
}

// Crafted keys spread over the shards like others, and over the slots of a block.
func TestCraftedKeysDoNotSkewShards(t *testing.T) {
	sets := craftedKeys()
	for _, keyed := range []bool{false, true} {
		table := newTable(t, Config{MaxKeys: 2000, Snapshots: keyed}) // 16 shards
		p := policy(t, "p", perHour(1))
		for name, keys := range sets {
			shards, starts := make([]int, len(table.shards)), map[int]int{}
			b := newBlock(1, 64, false)
			for _, k := range keys {
				c, err := table.charge(&weir.Charge{Policy: p, Key: k})
				if err != nil {
					t.Fatal(err)
				}
				if shards[c.shard]++; c.shard < len(shards)/4 {
					starts[b.start(c.h)]++
				}
			}
			evenly(t, fmt.Sprintf("keyed %t: %s: shards", keyed, name), shards, keyed)
			if len(starts) < 6 { // of 16; the bits that choose a shard say nothing of the slot
				t.Errorf("keyed %t: %s: probes of keys of a quarter of the shards start in %d places of a block", keyed, name, len(starts))
			}
		}
	}
}

// evenly checks that none of the counts is twice the mean. For SipHash it also asks
// for a chi-square as that of chance, up to six standard deviations. Maphash, which
// adds up the hashes of a long key's parts, does not always give that for keys
// that are made of the same few parts.
func evenly(t *testing.T, what string, counts []int, strictly bool) {
	t.Helper()
	most, n := 0, 0
	for _, c := range counts {
		most = max(most, c)
		n += c
	}
	mean, chi, free := float64(n)/float64(len(counts)), 0.0, float64(len(counts)-1)
	for _, c := range counts {
		chi += (float64(c) - mean) * (float64(c) - mean) / mean
	}
	if float64(most) >= 2*mean || strictly && chi-free > 6*math.Sqrt(2*free) {
		t.Errorf("%s: the fullest of %d has %d of %d, the mean is %.0f; chi-square %.0f", what, len(counts), most, n, mean, chi)
	}
}

// And in a real table: crafted keys fill no shard, and move no more rows.
func TestCraftedKeysInATable(t *testing.T) {
	keys := equalFNV()
	for _, keyed := range []bool{false, true} {
		table := newTable(t, Config{MaxKeys: len(keys), Snapshots: keyed})
		p := policy(t, "p", perHour(1))
		for _, k := range keys {
			take(t, table, p, k, 1)
		}
		most := 0
		for i := range table.shards {
			most = max(most, table.shards[i].rows())
		}
		mean := len(keys) / len(table.shards)
		if s := table.Stats(); most >= 2*mean || s.OverflowHits != 0 || s.Evicted != 0 || s.MostMoved >= 2*mean {
			t.Errorf("keyed %t: the fullest shard has %d rows, the mean is %d: %+v", keyed, most, mean, s)
		}
		check(t, table)
	}
}

// Two tables, and two policies of one table, put the same keys elsewhere: what was
// learned of one says nothing of another.
func TestTablesHashApart(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		a, b := newTable(t, Config{Snapshots: keyed}), newTable(t, Config{Snapshots: keyed})
		p, q := policy(t, "p", perHour(1)), policy(t, "q", perHour(1))
		same, alike := 0, 0
		for i := range 1000 {
			charge := func(table *Table, p *weir.Policy) charge {
				c, err := table.charge(&weir.Charge{Policy: p, Key: fmt.Sprint(i)})
				if err != nil {
					t.Fatal(err)
				}
				return c
			}
			if charge(a, p).shard == charge(b, p).shard {
				same++
			}
			if charge(a, p).h == charge(a, q).h {
				alike++
			}
		}
		if same > 30 || alike > 0 { // of 1,024 shards
			t.Errorf("keyed %t: %d of 1,000 keys are in the same shard of another table, %d hash alike under another policy", keyed, same, alike)
		}
	}
}
