package redistier

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/tiered"
)

const (
	madeAt = weir.Instant(1_700_000_000_000_000_000)
	redis  = weir.Instant(1_700_000_000_123_456_000)
)

var me = nodeID{1, 2, 3, 4, 5, 6, 7, 8}

func encoded(messages ...tiered.Message) string {
	to := appendHeader(nil, me, redis)
	for i := range messages {
		to = appendMessage(to, &messages[i], madeAt)
	}
	return string(to)
}

func drawMessage(t *rapid.T) tiered.Message {
	w := tiered.Message{
		Kind:   tiered.MessageKind(rapid.IntRange(1, 3).Draw(t, "kind")),
		Policy: strings.Repeat("p", rapid.IntRange(1, maxPolicyBytes).Draw(t, "policy")),
	}
	if w.Kind == tiered.PolicyChanged {
		return w
	}
	w.Key = string(rapid.SliceOfN(rapid.Byte(), 0, weir.MaxKeyBytes).Draw(t, "key"))
	if w.Kind == tiered.KeyReset {
		return w
	}
	instant := rapid.OneOf(rapid.Just(int64(0)), rapid.Just(algo.Never),
		rapid.Int64Range(int64(madeAt)-1e12, int64(madeAt)+1e15), rapid.Int64())
	w.Limits = rapid.Uint64().Draw(t, "limits")
	w.By = rapid.Byte().Draw(t, "by")
	w.Cost, w.Limit, w.Remaining = rapid.Int64().Draw(t, "cost"), rapid.Int64().Draw(t, "limit"), rapid.Int64().Draw(t, "remaining")
	w.Until, w.ResetAt = weir.Instant(instant.Draw(t, "until")), weir.Instant(instant.Draw(t, "reset at"))
	return w
}

// What is encoded is decoded, and instants come no later, and not much earlier.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		messages := rapid.SliceOfN(rapid.Custom(drawMessage), 0, 20).Draw(t, "messages")
		m, err := decode(encoded(messages...))
		if err != nil || m.from != me || m.sent != redis || len(m.messages) != len(messages) {
			t.Fatalf("decode: %+v, error %v", m, err)
		}
		m.localize(madeAt)
		for i, want := range messages {
			got := m.messages[i]
			checkInstant(t, "until", got.Until, want.Until)
			checkInstant(t, "reset at", got.ResetAt, want.ResetAt)
			got.Until, got.ResetAt = want.Until, want.ResetAt
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("message %d: %s", i, diff)
			}
		}
	})
}

func checkInstant(t *rapid.T, name string, got, want weir.Instant) {
	if instantTag(want) != instantGiven || want < madeAt {
		if got != max(want, -1<<63+madeAt) && got != want {
			t.Fatalf("%s: got %d, want it as it is: %d", name, got, want)
		}
		return
	}
	if got > want || got < want-(want-madeAt)/driftPart-1 {
		t.Fatalf("%s: got %d, want at most %d, and 200 ppm earlier at most", name, got, want)
	}
}

// The longest message is as long as maxMessageBytes says, and longer ones are not encoded.
func TestSizes(t *testing.T) {
	w := tiered.Message{
		Kind: tiered.KeyDenied, Policy: strings.Repeat("p", maxPolicyBytes), Key: strings.Repeat("k", weir.MaxKeyBytes),
		Cost: -1 << 63, Limit: -1 << 63, Remaining: -1 << 63, Until: -1 << 63, ResetAt: -1 << 63,
	}
	if n := len(encoded(w)) - headerBytes; n != maxMessageBytes || checkMessage(&w) != nil {
		t.Errorf("the longest message has %d bytes, want %d, error %v", n, maxMessageBytes, checkMessage(&w))
	}
	t.Logf("a denial of the key %q under %q: %d bytes", "user:12345678", "api",
		len(encoded(tiered.Message{Kind: tiered.KeyDenied, Policy: "api", Key: "user:12345678", Cost: 1, Limit: 100, Until: madeAt + 1e9, ResetAt: madeAt + 6e10}))-headerBytes)
	for name, bad := range map[string]tiered.Message{
		"policy": {Kind: tiered.PolicyChanged, Policy: w.Policy + "p"}, "no policy": {Kind: tiered.PolicyChanged},
		"key": {Kind: tiered.KeyReset, Policy: "p", Key: w.Key + "k"}, "kind": {Kind: 4, Policy: "p"}, "no kind": {Policy: "p"},
	} {
		if checkMessage(&bad) == nil {
			t.Errorf("%s: it was taken", name)
		}
	}
}

// Nothing but what encoding makes is read.
func TestDamage(t *testing.T) {
	denial := tiered.Message{Kind: tiered.KeyDenied, Policy: "p", Key: "k", Cost: 300, Limit: 5, Until: madeAt + 1000, ResetAt: madeAt + 2000}
	messages := []tiered.Message{denial, reset("k"), {Kind: tiered.PolicyChanged, Policy: "q"}}
	good := encoded(messages...)
	if _, err := decode(good); err != nil {
		t.Fatal(err)
	}
	for n := range len(good) {
		m, err := decode(good[:n])
		if err == nil && n != len(encoded(messages[:len(m.messages)]...)) { // there may be fewer messages
			t.Errorf("the first %d bytes: %+v", n, m)
		}
	}
	header := good[:headerBytes]
	for name, text := range map[string]string{
		"empty": "", "text": "hello, this is no payload", "version 0": "\x00" + good[1:], "version 2": "\x02" + good[1:],
		"too long":            encoded(make([]tiered.Message, 0)...) + strings.Repeat(encoded(reset("k"))[headerBytes:], maxPayloadBytes/5),
		"kind 0":              header + "\x00\x01p\x01k",
		"unused bits":         header + "\x42\x01p\x01k",
		"instants of a reset": header + "\x0a\x01p\x01k",
		"instant of kind 3":   header + "\x0d" + good[headerBytes+1:],
		"no policy":           header + "\x02\x00\x01k",
		"long policy":         header + "\x03\x81" + strings.Repeat("p", 129),
		"long key":            header + "\x02\x01p\x81\x02" + strings.Repeat("k", 257),
		"long varint":         header + "\x02\x01p\x81\x00k",
		"endless varint":      header + "\x02\x01p" + strings.Repeat("\xff", 20),
		"one byte too many":   good + "\x02",
		"a denial of no time": string(appendHeader(nil, me, 0)) + good[headerBytes:],
	} {
		if m, err := decode(text); err == nil {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

// Strings may be kept: they do not keep the payload alive.
func TestStringsAreCopies(t *testing.T) {
	text := encoded(reset("a key"), reset("another"))
	m, err := decode(text)
	if err != nil {
		t.Fatal(err)
	}
	from, to := uintptr(unsafe.Pointer(unsafe.StringData(text))), uintptr(len(text))
	for _, w := range m.messages {
		for _, s := range []string{w.Key, w.Policy} {
			if at := uintptr(unsafe.Pointer(unsafe.StringData(s))); at >= from && at < from+to {
				t.Errorf("%q lies within the payload", s)
			}
		}
	}
}

// A payload that can be read is the only one that means what it says.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(encoded(reset("k"))))
	f.Add([]byte(encoded(tiered.Message{Kind: tiered.PolicyChanged, Policy: "q"}, reset(""))))
	f.Add([]byte(encoded(tiered.Message{Kind: tiered.KeyDenied, Policy: "p", Key: "k", Cost: 1, Limit: 5, Remaining: -3, Until: madeAt + 1000, ResetAt: weir.Instant(algo.Never)})))
	f.Add([]byte("\x01"))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := decode(string(text))
		if err != nil {
			return
		}
		again := appendHeader(nil, m.from, m.sent)
		for i := range m.messages {
			w := m.messages[i]
			if err := checkMessage(&w); err != nil {
				t.Fatal(err)
			}
			again = appendAsDecoded(again, w, m.heads[i])
		}
		if string(again) != string(text) {
			t.Fatalf("read %q, which is written as %q", text, again)
		}
		m.localize(madeAt)
		_ = fmt.Sprint(m)
	})
}

// appendAsDecoded writes a message whose instants count from sent. Those of 0 or Never would
// be taken for none, so the head decides.
func appendAsDecoded(to []byte, w tiered.Message, head byte) []byte {
	until, resetAt := w.Until, w.ResetAt
	w.Until, w.ResetAt = 0, 0
	at := len(to)
	to = appendMessage(to, &w, 0)
	to[at] = head
	if head>>2&3 == instantGiven {
		to = binary.AppendVarint(to, int64(until))
	}
	if head>>4&3 == instantGiven {
		to = binary.AppendVarint(to, int64(resetAt))
	}
	return to
}
