package guard

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"
	"testing/iotest"
)

// hexOf returns the hash of a key as files have it.
func hexOf(key string) string {
	hash := HashKey(key)
	return hex.EncodeToString(hash[:])
}

func TestReadKeys(t *testing.T) {
	a, b := HashKey("a"), HashKey("b")
	tests := []struct {
		name, file string
		want       map[KeyHash]Owner
	}{
		{"empty", "", map[KeyHash]Owner{}},
		{"comments", "# keys\n\n  \t\n\t# more", map[KeyHash]Owner{}},
		{"ID", hexOf("a") + " app", map[KeyHash]Owner{a: {ID: "app"}}},
		{"plan", hexOf("a") + "\tapp \t pro\n", map[KeyHash]Owner{a: {ID: "app", Plan: "pro"}}},
		{"upper case", strings.ToUpper(hexOf("a")) + " app", map[KeyHash]Owner{a: {ID: "app"}}},
		{"comment behind", hexOf("a") + " app # pro\n" + hexOf("b") + " b#1 pro #x", map[KeyHash]Owner{a: {ID: "app"}, b: {ID: "b#1", Plan: "pro"}}},
		{"lines of Windows", hexOf("a") + " app\r\n" + hexOf("b") + " b gold\r\n", map[KeyHash]Owner{a: {ID: "app"}, b: {ID: "b", Plan: "gold"}}},
		{"two keys of one owner", hexOf("a") + " app\n" + hexOf("b") + " app", map[KeyHash]Owner{a: {ID: "app"}, b: {ID: "app"}}},
		{"longest ID", hexOf("a") + " " + strings.Repeat("x", maxName), map[KeyHash]Owner{a: {ID: strings.Repeat("x", maxName)}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ReadKeys(strings.NewReader(tt.file))
			if err != nil || got == nil || !maps.Equal(got, tt.want) {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

func TestReadKeysRefuses(t *testing.T) {
	tests := []struct {
		name, file, want string
	}{
		{"no hash", "\napp " + hexOf("a"), "guard: keys: line 2: does not begin with a SHA-256 hash, which has 64 hexadecimal digits"},
		{"short hash", hexOf("a")[2:] + " app", "line 1: does not begin"},
		{"long hash", hexOf("a") + "0 app", "line 1: does not begin"},
		{"no digits", strings.Repeat("g", 64) + " app", "line 1: does not begin"},
		{"byte order mark", "\ufeff" + hexOf("a") + " app", "line 1: does not begin"},
		{"no ID", hexOf("a"), "line 1: the ID of the owner is missing after the hash"},
		{"only a comment", hexOf("a") + " # app", "line 1: the ID of the owner is missing after the hash"},
		{"sha256sum", hexOf("a") + "  -", `line 1: the ID of the owner is missing: it takes the place of the "-" of sha256sum`},
		{"four fields", hexOf("a") + " app pro x", "line 1: there is more than a hash, an ID and a plan"},
		{"empty key", hexOf("") + " app", "line 1: is the hash of an empty key"},
		{"twice", hexOf("a") + " app\n#\n" + strings.ToUpper(hexOf("a")) + " b", "line 3: has the same hash as line 1"},
		{"long ID", hexOf("a") + " " + strings.Repeat("x", maxName+1), "line 1: an ID or plan has more than 252 bytes or characters that cannot be printed"},
		{"control character", hexOf("a") + " a\x1bb", "line 1: an ID or plan"},
		{"carriage return", hexOf("a") + " a\rb", "line 1: an ID or plan"},
		{"no text", hexOf("a") + " app \xff", "line 1: an ID or plan"},
		{"another space", hexOf("a") + "\u00a0app", "line 1: does not begin"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ReadKeys(strings.NewReader(tt.file))
			if got != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestReadKeysJoinsProblems(t *testing.T) {
	_, err := ReadKeys(strings.NewReader(strings.Repeat("secret\n", 50)))
	if err == nil || strings.Count(err.Error(), "guard: keys: line") != maxKeyProblems || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
	broken := errors.New("disk")
	if _, err := ReadKeys(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Error(err)
	}
}

func TestReadKeysIsBounded(t *testing.T) {
	if _, err := ReadKeys(endless{}); err == nil || !strings.Contains(err.Error(), "16777216 bytes") {
		t.Error(err)
	}
	var file strings.Builder
	for n := range maxKeys {
		fmt.Fprintf(&file, "%064x app-%d\n", n+1, n)
	}
	if keys, err := ReadKeys(strings.NewReader(file.String())); err != nil || len(keys) != maxKeys {
		t.Errorf("got %d keys, %v", len(keys), err)
	}
	file.WriteString(hexOf("a") + " app\n")
	if _, err := ReadKeys(strings.NewReader(file.String())); err == nil || !strings.Contains(err.Error(), "line 100001: there are more than 100000 keys") {
		t.Error(err)
	}
}

// endless is a file of comments.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '#'
	}
	return len(p), nil
}

// FuzzReadKeys reads any file. What is accepted can be written and read again, and makes an
// Identifier; errors quote nothing.
func FuzzReadKeys(f *testing.F) {
	f.Add(hexOf("a") + "  app  pro # x\n# y\r\n\n" + hexOf("b") + " b")
	f.Add(hexOf("") + "  -\nsecret app\n")
	f.Add("\xff\x00")
	f.Fuzz(func(t *testing.T, file string) {
		keys, err := ReadKeys(strings.NewReader(file))
		if err != nil {
			checkQuotesNothing(t, file, err)
			return
		}
		var again strings.Builder
		for hash, owner := range keys {
			fmt.Fprintf(&again, "%x %s %s\n", hash, owner.ID, owner.Plan)
		}
		if got, err := ReadKeys(io.Reader(strings.NewReader(again.String()))); err != nil || !maps.Equal(got, keys) {
			t.Errorf("%q: got %v, %v, want %v", again.String(), got, err, keys)
		}
		newIdentifier(t, Identity{Keys: keys})
	})
}

// checkQuotesNothing fails if the error has a field of the file, but for those that are short enough
// to be there by chance.
func checkQuotesNothing(t *testing.T, file string, err error) {
	t.Helper()
	for _, field := range strings.Fields(file) {
		if len(field) > len("hexadecimal") && strings.Contains(err.Error(), field) {
			t.Errorf("%q is in %v", field, err)
		}
	}
}
