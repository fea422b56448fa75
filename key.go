package weir

import "github.com/weirlimit/weir/internal/compiled"

// MaxKeyBytes is the greatest length of a key: 256 bytes.
const MaxKeyBytes = compiled.MaxKeyBytes

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
