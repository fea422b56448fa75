// Package secret holds passwords and tokens so that they do not end up in logs.
//
//	password := secret.New(os.Getenv("REDIS_PASSWORD"))
//	slog.Info("connecting", "password", password) // password=***
//	auth(password.Reveal())
//
// Whatever prints a [Secret], be it fmt with any verb, log/slog, encoding/json or an
// error, prints ***, also where the Secret is a field of something else. Only Reveal
// returns the text, so a search for Reveal finds every place where it can leak.
//
// It does not protect memory: the text stays there until it is garbage collected, and
// can be read by anything that can read the memory of the process. Printers that follow the
// pointers of unexported fields, as cmp.Diff does in tests, print it, too.
package secret

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"
	"unique"
)

// Mask is what is printed instead of a secret.
const Mask = "***"

// Secret is a text that is not printed. The zero value means that there is no secret, and
// prints as the empty string. Secrets with the same text are equal (==).
type Secret struct {
	// text is behind a pointer because fmt calls no methods of unexported fields: it
	// prints their contents, and of a pointer only the address. Two handles are the
	// same pointer if the texts are equal.
	text unique.Handle[string]
}

// New returns the secret with this text. New("") returns the zero value.
func New(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{unique.Make(text)}
}

// IsZero says whether there is no secret.
func (s Secret) IsZero() bool { return s == Secret{} }

// Reveal returns the text.
func (s Secret) Reveal() string {
	if s.IsZero() {
		return ""
	}
	return s.text.Value()
}

// Equal says whether two secrets have the same text, in a time that does not depend on
// it. It is == by a name that cmp.Diff looks for.
func (s Secret) Equal(other Secret) bool { return s == other }

// Matches says whether text, which comes from an untrusted caller, is the secret. The time
// it takes depends on the lengths of the two, but not on where they differ. The zero value
// matches nothing, not even "".
func (s Secret) Matches(text string) bool {
	want, got := sha256.Sum256([]byte(s.Reveal())), sha256.Sum256([]byte(text))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1 && !s.IsZero()
}

// String returns Mask, or "" if there is no secret.
func (s Secret) String() string {
	if s.IsZero() {
		return ""
	}
	return Mask
}

// GoString is String for %#v.
func (s Secret) GoString() string { return fmt.Sprintf("secret.New(%q)", s.String()) }

// Format prints String for every verb, because %x and %d would get at the field.
func (s Secret) Format(f fmt.State, verb rune) {
	text := s.String()
	switch {
	case verb == 'v' && f.Flag('#'):
		text = s.GoString()
	case verb == 'q':
		text = fmt.Sprintf("%q", text)
	}
	_, _ = io.WriteString(f, text) // a fmt.State has no errors to return
}

// MarshalText returns String. There is no UnmarshalText: a masked secret cannot be restored.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalJSON returns String as JSON.
func (s Secret) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, "%q", s.String()), nil }

// LogValue returns String.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
