package redistier

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/storeapi"
	"github.com/weirlimit/weir/tiered"
)

// A message is what Redis carries: some words of one node.
//
//	version (1 byte) · node (8) · sent (8) · words, to the end
//
// sent is when it was made, by Redis's clock, in nanoseconds, or 0 if that is unknown;
// then it has no denials. Numbers of fixed size have their greatest byte first. A word is
//
//	head · policy · key unless it is WasSet · the rest if it is Denied
//	head:     kind (2 bits) | until (2) | reset at (2) | 0 (2)
//	policy:   length (1 byte), bytes
//	key:      length (varint), bytes
//	the rest: limits (8 bytes) · by (1) · cost · limit · remaining · until · reset at (varints)
//
// An instant is the nanoseconds from sent to it, so that one translation is enough for
// all. Two instants are none: 0 and algo.Never are told by the head, and take no bytes.
//
// Each message has one form, and everything else is damage: no varint is longer than it
// must be, and there is nothing after the last word.
const (
	version     = 1
	headerBytes = 1 + 8 + 8

	maxPolicyBytes = 128
	maxVarint      = binary.MaxVarintLen64
	maxWordBytes   = 1 + 1 + maxPolicyBytes + 2 + weir.MaxKeyBytes + 8 + 1 + 5*maxVarint

	// maxMessageBytes is about a thousand words: it delays others on the connection
	// by less than a millisecond.
	maxMessageBytes = 64 << 10
)

// How a head tells an instant.
const (
	instantZero  = 0
	instantNever = 1
	instantGiven = 2
)

// nodeID is a node's, drawn at random.
type nodeID [8]byte

// appendHeader begins a message.
func appendHeader(to []byte, from nodeID, sent weir.Instant) []byte {
	to = append(to, version)
	to = append(to, from[:]...)
	return binary.BigEndian.AppendUint64(to, uint64(sent)) //nolint:gosec // and back
}

// checkWord says why a word cannot be encoded.
func checkWord(w *tiered.Message) error {
	switch {
	case w.Kind < tiered.KeyDenied || w.Kind > tiered.PolicyChanged:
		return fmt.Errorf("redistier: word of kind %d: there is none", w.Kind)
	case w.Policy == "" || len(w.Policy) > maxPolicyBytes:
		return fmt.Errorf("redistier: word on a policy with a name of %d bytes: it must have 1 to %d", len(w.Policy), maxPolicyBytes)
	}
	return storeapi.CheckKey(w.Key)
}

// appendWord adds a word to a message that is made at now, by the clock of the word's
// instants. The word must be one that checkWord likes.
func appendWord(to []byte, w *tiered.Message, now weir.Instant) []byte {
	head := byte(w.Kind)
	if w.Kind == tiered.KeyDenied {
		head |= instantTag(w.Until)<<2 | instantTag(w.ResetAt)<<4
	}
	to = append(to, head, byte(len(w.Policy)))
	to = append(to, w.Policy...)
	if w.Kind == tiered.PolicyChanged {
		return to
	}
	to = binary.AppendUvarint(to, uint64(len(w.Key)))
	to = append(to, w.Key...)
	if w.Kind != tiered.KeyDenied {
		return to
	}
	to = binary.BigEndian.AppendUint64(to, w.Limits)
	to = append(to, w.By)
	to = binary.AppendVarint(to, w.Cost)
	to = binary.AppendVarint(to, w.Limit)
	to = binary.AppendVarint(to, w.Remaining)
	to = appendInstant(to, w.Until, now)
	return appendInstant(to, w.ResetAt, now)
}

func instantTag(i weir.Instant) byte {
	switch i {
	case 0:
		return instantZero
	case weir.Instant(algo.Never):
		return instantNever
	}
	return instantGiven
}

func appendInstant(to []byte, i, now weir.Instant) []byte {
	if instantTag(i) != instantGiven {
		return to
	}
	return binary.AppendVarint(to, saturated(int64(i), -int64(now)))
}

// message is one that has come. Until and ResetAt of its words count from when it was
// made, and have to be translated by settle.
type message struct {
	from  nodeID
	sent  weir.Instant // by Redis's clock, 0 = unknown
	words []tiered.Message
	given []byte // per word: the head
}

var errDamaged = errors.New("redistier: damaged message")

// decodeHeader reads who has sent a message, and when, by Redis's clock.
func decodeHeader(text string) (m message, words string, err error) {
	if len(text) < headerBytes || len(text) > maxMessageBytes || text[0] != version {
		return message{}, "", errDamaged
	}
	copy(m.from[:], text[1:])
	m.sent = weir.Instant(binary.BigEndian.Uint64([]byte(text[9:headerBytes]))) //nolint:gosec // as it was written
	return m, text[headerBytes:], nil
}

// decode reads a message. Its words share no memory with it.
func decode(text string) (message, error) {
	m, rest, err := decodeHeader(text)
	if err != nil {
		return message{}, err
	}
	d := decoder{rest: rest}
	for len(d.rest) > 0 {
		head, w := d.word()
		if d.bad || w.Kind == tiered.KeyDenied && m.sent == 0 {
			return message{}, errDamaged
		}
		m.words, m.given = append(m.words, w), append(m.given, head)
	}
	return m, nil
}

// settle translates the words' instants, if the message was made at made by this clock.
// Clocks may drift apart until then, so what is ahead comes somewhat early.
func (m *message) settle(made weir.Instant) {
	for i, head := range m.given {
		w := &m.words[i]
		w.Until, w.ResetAt = settled(head>>2&3, w.Until, made), settled(head>>4&3, w.ResetAt, made)
	}
}

func settled(tag byte, i, made weir.Instant) weir.Instant {
	if tag != instantGiven {
		return i
	}
	if i > 0 {
		i = max(0, i.Add(-drift(time.Duration(i))))
	}
	return weir.Instant(saturated(int64(made), int64(i)))
}

// dropDenials removes the denials, and returns how many there were.
func (m *message) dropDenials() int {
	kept := m.words[:0]
	for _, w := range m.words {
		if w.Kind != tiered.KeyDenied {
			kept = append(kept, w)
		}
	}
	dropped := len(m.words) - len(kept)
	m.words, m.given = kept, nil
	return dropped
}

// decoder reads words. After damage, bad is set, and what it returns means nothing.
type decoder struct {
	rest   string
	bad    bool
	policy string // the last word's
}

func (d *decoder) word() (head byte, w tiered.Message) {
	head = d.byte()
	w.Kind = tiered.MessageKind(head & 3)
	until, resetAt := head>>2&3, head>>4&3
	switch {
	case w.Kind < tiered.KeyDenied, until > instantGiven, resetAt > instantGiven, head>>6 != 0:
		d.bad = true
	case w.Kind != tiered.KeyDenied && until|resetAt != 0:
		d.bad = true
	}
	w.Policy = d.name()
	if w.Kind == tiered.PolicyChanged {
		return head, w
	}
	w.Key = strings.Clone(d.take(d.size(weir.MaxKeyBytes)))
	if w.Kind != tiered.KeyDenied {
		return head, w
	}
	w.Limits = d.uint64()
	w.By = d.byte()
	w.Cost, w.Limit, w.Remaining = d.varint(), d.varint(), d.varint()
	w.Until, w.ResetAt = d.instant(until), d.instant(resetAt)
	return head, w
}

// name reads a policy's name. Words that follow each other mostly have the same.
func (d *decoder) name() string {
	n := int(d.byte())
	if n == 0 || n > maxPolicyBytes {
		d.bad = true
		return ""
	}
	if name := d.take(n); name != d.policy {
		d.policy = strings.Clone(name)
	}
	return d.policy
}

func (d *decoder) instant(tag byte) weir.Instant {
	switch tag {
	case instantZero:
		return 0
	case instantNever:
		return weir.Instant(algo.Never)
	}
	return weir.Instant(d.varint())
}

// take reads so many bytes.
func (d *decoder) take(n int) string {
	if d.bad || n > len(d.rest) {
		d.bad = true
		return ""
	}
	var taken string
	taken, d.rest = d.rest[:n], d.rest[n:]
	return taken
}

func (d *decoder) byte() byte {
	if b := d.take(1); b != "" {
		return b[0]
	}
	return 0
}

func (d *decoder) uint64() uint64 {
	if b := d.take(8); b != "" {
		return binary.BigEndian.Uint64([]byte(b))
	}
	return 0
}

// size reads a length up to most.
func (d *decoder) size(most uint64) int {
	n := d.uvarint()
	if n > most {
		d.bad = true
		return 0
	}
	return int(n) //nolint:gosec // at most most
}

func (d *decoder) varint() int64 {
	u := d.uvarint()
	return int64(u>>1) ^ -int64(u&1) //nolint:gosec // zigzag, as binary.AppendVarint has it
}

// uvarint reads a varint of the shortest form.
func (d *decoder) uvarint() uint64 {
	var buf [maxVarint]byte
	u, n := binary.Uvarint(buf[:copy(buf[:], d.rest)])
	if n <= 0 || n > 1 && d.rest[n-1] == 0 {
		d.bad = true
		return 0
	}
	d.take(n)
	return u
}

// saturated returns a + b, or the nearer end of int64.
func saturated(a, b int64) int64 {
	sum := a + b
	switch {
	case a > 0 && b > 0 && sum < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && sum >= 0:
		return math.MinInt64
	}
	return sum
}
