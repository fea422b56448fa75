package memstore

import (
	"crypto/rand"
	"encoding/binary"
	"hash/maphash"
	"math/bits"
)

// A hasher turns keys into 64 bits that nobody outside can foretell, so that
// nobody can craft keys that meet in one shard or one row.
//
// A maphash seed is the process's own and cannot be written to a file. A table
// that is to be restored from one uses SipHash instead, with a random key that
// lies in the file.
type hasher struct {
	seed   maphash.Seed // set if not keyed
	keyed  bool
	k0, k1 uint64
}

func newHasher(keyed bool) hasher {
	if !keyed {
		return hasher{seed: maphash.MakeSeed()}
	}
	return keyedHasher(randomID())
}

func keyedHasher(key [16]byte) hasher {
	return hasher{keyed: true, k0: binary.LittleEndian.Uint64(key[:]), k1: binary.LittleEndian.Uint64(key[8:])}
}

// key returns what makes the same hasher, of a keyed one.
func (h *hasher) key() (key [16]byte) {
	binary.LittleEndian.PutUint64(key[:], h.k0)
	binary.LittleEndian.PutUint64(key[8:], h.k1)
	return key
}

func (h *hasher) sum(s string) uint64 {
	if !h.keyed {
		return maphash.String(h.seed, s)
	}
	return sipHash13(h.k0, h.k1, s)
}

func randomID() (id [16]byte) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}

// sipHash13 is SipHash with one round per word and three at the end: the form
// that the standard maps of Rust and Ruby use against crafted keys.
//
// Source: Aumasson and Bernstein, SipHash: a fast short-input PRF, 2012.
func sipHash13(k0, k1 uint64, s string) uint64 {
	v := newSip(k0, k1)
	last := uint64(len(s)) << 56
	for len(s) >= 8 {
		m := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		v.d ^= m
		v.round()
		v.a ^= m
		s = s[8:]
	}
	for i := range len(s) {
		last |= uint64(s[i]) << (8 * i)
	}
	v.d ^= last
	v.round()
	v.a ^= last
	v.c ^= 0xff
	v.round()
	v.round()
	v.round()
	return v.a ^ v.b ^ v.c ^ v.d
}

// sip is SipHash's state; the paper calls its words v0 to v3.
type sip struct{ a, b, c, d uint64 }

func newSip(k0, k1 uint64) sip {
	return sip{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
}

func (v *sip) round() {
	v.a += v.b
	v.b = bits.RotateLeft64(v.b, 13) ^ v.a
	v.a = bits.RotateLeft64(v.a, 32)
	v.c += v.d
	v.d = bits.RotateLeft64(v.d, 16) ^ v.c
	v.a += v.d
	v.d = bits.RotateLeft64(v.d, 21) ^ v.a
	v.c += v.b
	v.b = bits.RotateLeft64(v.b, 17) ^ v.c
	v.c = bits.RotateLeft64(v.c, 32)
}
