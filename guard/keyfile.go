package guard

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weirlimit/weir"
)

// The bounds of ReadKeys. Lines of a usual length need 10 MB for the most keys.
const (
	maxKeyFile     = 16 << 20 // bytes
	maxKeys        = 100_000
	maxKeyProblems = 10 // that one error has
)

// ReadKeys reads a list of API keys for Identity.Keys, one in each line: the SHA-256 hash of the key
// in hexadecimal, the ID of its owner and, if the owner has one, the plan.
//
//	# made by: printf %s "$KEY" | sha256sum
//	5b3a9e…(64 digits)  mobile-app
//	0c11d2…(64 digits)  partner-7   pro   # until the contract ends
//
// Fields are separated by spaces or tabs. A field that begins with # begins a comment. IDs and plans
// consist of printable characters. Several keys may have the same owner, but no hash may occur twice.
// A list has at most 100,000 keys and 16 MiB.
//
// Its error joins the first ten problems, each with the number of the line. It never has text of the
// file, which may be a key that somebody wrote in the place of its hash.
func ReadKeys(r io.Reader) (map[KeyHash]Owner, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxKeyFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("guard: keys: %w", err)
	case len(text) > maxKeyFile:
		return nil, fmt.Errorf("guard: keys: the list has more than %d bytes: use VerifyKey", maxKeyFile)
	}
	list := keyList{owners: map[KeyHash]Owner{}, lines: map[KeyHash]int{}}
	var problems []error
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		if problem := list.add(number, strings.TrimRight(line, "\r\n")); problem != "" {
			problems = append(problems, fmt.Errorf("guard: keys: line %d: %s", number, problem))
		}
		if len(problems) == maxKeyProblems {
			break
		}
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return list.owners, nil
}

// keyList is what ReadKeys has read.
type keyList struct {
	owners map[KeyHash]Owner
	lines  map[KeyHash]int // where the hashes are
}

// add reads a line. It returns what is wrong, "" if nothing is.
func (l *keyList) add(number int, line string) (problem string) {
	fields := withoutComment(strings.FieldsFunc(line, isBlank))
	if len(fields) == 0 {
		return ""
	}
	hash, ok := parseHash(fields[0])
	if !ok {
		return "does not begin with a SHA-256 hash, which has 64 hexadecimal digits"
	}
	switch {
	case len(fields) == 1:
		return "the ID of the owner is missing after the hash"
	case len(fields) > 3:
		return "there is more than a hash, an ID and a plan"
	case fields[1] == "-":
		return `the ID of the owner is missing: it takes the place of the "-" of sha256sum`
	case hash == HashKey(""):
		return "is the hash of an empty key"
	case l.lines[hash] > 0:
		return fmt.Sprintf("has the same hash as line %d", l.lines[hash])
	case len(l.owners) == maxKeys:
		return fmt.Sprintf("there are more than %d keys: use VerifyKey", maxKeys)
	}
	for _, field := range fields[1:] {
		if !isName(field) {
			return fmt.Sprintf("an ID or plan has more than %d bytes or characters that cannot be printed", maxName)
		}
	}
	owner := Owner{ID: fields[1]}
	if len(fields) == 3 {
		owner.Plan = fields[2]
	}
	l.owners[hash], l.lines[hash] = owner, number
	return ""
}

func parseHash(digits string) (hash KeyHash, ok bool) {
	if len(digits) != hex.EncodedLen(len(hash)) {
		return hash, false
	}
	_, err := hex.Decode(hash[:], []byte(digits))
	return hash, err == nil
}

// withoutComment returns the fields before the one that begins with #.
func withoutComment(fields []string) []string {
	for i, field := range fields {
		if field[0] == '#' {
			return fields[:i]
		}
	}
	return fields
}

func isBlank(c rune) bool { return c == ' ' || c == '\t' }

// maxName is how long an ID may be so that its subject can be a key as it is.
const maxName = weir.MaxKeyBytes - len("key:")

// isName says whether s can be an ID or a plan.
func isName(s string) bool {
	notPrintable := func(c rune) bool { return !unicode.IsPrint(c) }
	return len(s) <= maxName && utf8.ValidString(s) && !strings.ContainsFunc(s, notPrintable)
}
