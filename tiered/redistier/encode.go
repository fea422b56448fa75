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

// A payload is what is published to Redis: one or more messages of a node.
//
//	version (1 byte) · node (8) · sent (8) · messages, to the end
//
// sent is when it was made, by Redis's clock, in nanoseconds, or 0 if that is unknown;
// then it contains no denials. Numbers of fixed size are big-endian. A message is
//
//	head · policy · key unless the kind is PolicyChanged · the rest if it is KeyDenied
//	head:     kind (2 bits) | until (2) | reset at (2) | 0 (2)
//	policy:   length (1 byte), bytes
//	key:      length (varint), bytes
//	the rest: limits (8 bytes) · by (1) · cost · limit · remaining · until · reset at (varints)
//
// An instant is encoded as the nanoseconds from sent to it, so that one clock conversion
// serves all. The special instants 0 and algo.Never are encoded in the head and take no
// more bytes.
//
// The encoding is canonical, and anything else is rejected as damaged: varints have their
// shortest form, and nothing follows the last message.
const (
	version     = 1
	headerBytes = 1 + 8 + 8

	maxPolicyBytes  = 128
	maxVarint       = binary.MaxVarintLen64
	maxMessageBytes = 1 + 1 + maxPolicyBytes + 2 + weir.MaxKeyBytes + 8 + 1 + 5*maxVarint

	// maxPayloadBytes is the size of about a thousand messages. A payload of that size
	// delays others on the connection by less than a millisecond.
	maxPayloadBytes = 64 << 10
)

// How a head encodes an instant.
const (
	instantZero  = 0
	instantNever = 1
	instantGiven = 2
)

// A nodeID identifies a node. It is random.
type nodeID [8]byte

// appendHeader begins a payload.
func appendHeader(to []byte, from nodeID, sent weir.Instant) []byte {
	to = append(to, version)
	to = append(to, from[:]...)
	return binary.BigEndian.AppendUint64(to, uint64(sent)) //nolint:gosec // and back
}

// checkMessage returns an error if a message cannot be encoded.
func checkMessage(m *tiered.Message) error {
	switch {
	case m.Kind < tiered.KeyDenied || m.Kind > tiered.PolicyChanged:
		return fmt.Errorf("redistier: message has unknown kind %d", m.Kind)
	case m.Policy == "" || len(m.Policy) > maxPolicyBytes:
		return fmt.Errorf("redistier: policy name of a message has %d bytes: must be 1 to %d", len(m.Policy), maxPolicyBytes)
	}
	return storeapi.CheckKey(m.Key)
}

// appendMessage appends a message to a payload that is made at now, by the clock of the
// message's instants. The message must have passed checkMessage.
func appendMessage(to []byte, m *tiered.Message, now weir.Instant) []byte {
	head := byte(m.Kind)
	if m.Kind == tiered.KeyDenied {
		head |= instantTag(m.Until)<<2 | instantTag(m.ResetAt)<<4
	}
	to = append(to, head, byte(len(m.Policy)))
	to = append(to, m.Policy...)
	if m.Kind == tiered.PolicyChanged {
		return to
	}
	to = binary.AppendUvarint(to, uint64(len(m.Key)))
	to = append(to, m.Key...)
	if m.Kind != tiered.KeyDenied {
		return to
	}
	to = binary.BigEndian.AppendUint64(to, m.Limits)
	to = append(to, m.By)
	to = binary.AppendVarint(to, m.Cost)
	to = binary.AppendVarint(to, m.Limit)
	to = binary.AppendVarint(to, m.Remaining)
	to = appendInstant(to, m.Until, now)
	return appendInstant(to, m.ResetAt, now)
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

// payload is a decoded payload. Until and ResetAt of its messages are relative to when it was
// made; localize makes them instants of this node's clock.
type payload struct {
	from     nodeID
	sent     weir.Instant // by Redis's clock, 0 = unknown
	messages []tiered.Message
	heads    []byte // per message
}

var errDamaged = errors.New("redistier: damaged payload")

// decodeHeader decodes the sender of a payload, and when it was sent by Redis's clock.
func decodeHeader(text string) (p payload, messages string, err error) {
	if len(text) < headerBytes || len(text) > maxPayloadBytes || text[0] != version {
		return payload{}, "", errDamaged
	}
	copy(p.from[:], text[1:])
	p.sent = weir.Instant(binary.BigEndian.Uint64([]byte(text[9:headerBytes]))) //nolint:gosec // as it was written
	return p, text[headerBytes:], nil
}

// decode decodes a payload. The messages share no memory with text.
func decode(text string) (payload, error) {
	p, rest, err := decodeHeader(text)
	if err != nil {
		return payload{}, err
	}
	d := decoder{rest: rest}
	for len(d.rest) > 0 {
		head, m := d.message()
		if d.bad || m.Kind == tiered.KeyDenied && p.sent == 0 {
			return payload{}, errDamaged
		}
		p.messages, p.heads = append(p.messages, m), append(p.heads, head)
	}
	return p, nil
}

// localize converts the messages' instants to this node's clock, by which the payload was made
// at made. Future instants are made earlier by the drift that clocks may have until then.
func (p *payload) localize(made weir.Instant) {
	for i, head := range p.heads {
		m := &p.messages[i]
		m.Until, m.ResetAt = localized(head>>2&3, m.Until, made), localized(head>>4&3, m.ResetAt, made)
	}
}

func localized(tag byte, i, made weir.Instant) weir.Instant {
	if tag != instantGiven {
		return i
	}
	if i > 0 {
		i = max(0, i.Add(-drift(time.Duration(i))))
	}
	return weir.Instant(saturated(int64(made), int64(i)))
}

// dropDenials removes the denials, and returns how many there were.
func (p *payload) dropDenials() int {
	kept := p.messages[:0]
	for _, m := range p.messages {
		if m.Kind != tiered.KeyDenied {
			kept = append(kept, m)
		}
	}
	dropped := len(p.messages) - len(kept)
	p.messages, p.heads = kept, nil
	return dropped
}

// A decoder decodes messages. When it finds damage it sets bad, and its results are invalid.
type decoder struct {
	rest   string
	bad    bool
	policy string // of the last message
}

func (d *decoder) message() (head byte, m tiered.Message) {
	head = d.byte()
	m.Kind = tiered.MessageKind(head & 3)
	until, resetAt := head>>2&3, head>>4&3
	switch {
	case m.Kind < tiered.KeyDenied, until > instantGiven, resetAt > instantGiven, head>>6 != 0:
		d.bad = true
	case m.Kind != tiered.KeyDenied && until|resetAt != 0:
		d.bad = true
	}
	m.Policy = d.name()
	if m.Kind == tiered.PolicyChanged {
		return head, m
	}
	m.Key = strings.Clone(d.take(d.size(weir.MaxKeyBytes)))
	if m.Kind != tiered.KeyDenied {
		return head, m
	}
	m.Limits = d.uint64()
	m.By = d.byte()
	m.Cost, m.Limit, m.Remaining = d.varint(), d.varint(), d.varint()
	m.Until, m.ResetAt = d.instant(until), d.instant(resetAt)
	return head, m
}

// name decodes the name of a policy. It reuses the string of the last message, which mostly
// has the same name.
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

// take reads n bytes.
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

// saturated returns a + b, clamped to the range of int64.
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
