package weir

import "fmt"

// MaxKeyBytes is the greatest length of a key.
const MaxKeyBytes = 256

// A KeyError reports a key that is too long.
type KeyError struct{ Bytes int }

func (e *KeyError) Error() string {
	return fmt.Sprintf("weir: key of %d bytes: at most %d fit; hash longer ones", e.Bytes, MaxKeyBytes)
}

// CheckKey returns a *KeyError if key is too long. Any bytes may be in it, and
// the empty key is a key like others.
func CheckKey(key string) error {
	if len(key) > MaxKeyBytes {
		return &KeyError{len(key)}
	}
	return nil
}

// checkName accepts what may stand in headers, metrics and logs as it is.
func checkName(name string) bool {
	if name == "" || len(name) > 128 {
		return false
	}
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '-', c == '_', c == '.', c == ':', c == '/':
		default:
			return false
		}
	}
	return true
}
