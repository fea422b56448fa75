package envoyapi

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/weirlimit/weir/server/internal/call"
)

const (
	maxName  = 128 // of a policy
	maxLabel = 64  // of a policy of package ruleset
)

// Label returns the name of a domain in metrics, and in clients' policies: "envoy." and the
// domain, or its hash if it has other characters than names or is too long.
func Label(domain string) string {
	if label := "envoy." + domain; isPlain(domain) && len(label) <= maxLabel {
		return label
	}
	return "envoy." + sum(domain)
}

// policyName returns the name of the policy of a path. If a part has other characters than names,
// or the name would be too long, it ends with a hash of the path.
func policyName(path []string) string {
	name := "envoy/" + path[0]
	for i := 1; i < len(path); i += 2 {
		name += "/" + path[i]
		if value := path[i+1]; value != "" {
			name += ":" + value
		}
	}
	odd := slices.ContainsFunc(path, func(part string) bool { return part != "" && !isPlain(part) })
	if !odd && len(name) <= maxName {
		return name
	}
	var exact []byte
	for _, part := range path {
		exact = appendPart(exact, part)
	}
	head := strings.Map(fit, name)
	return head[:min(len(head), maxName-33)] + ":" + sum(string(exact))
}

// fit returns a character, or _ if names cannot have it.
func fit(c rune) rune {
	if isPlain(string(c)) || c == '/' || c == ':' {
		return c
	}
	return '_'
}

// isPlain reports whether a text has only characters of names.
func isPlain(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool { return !strings.ContainsRune(letters, c) })
}

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:16])
}

// keyOf returns the key of a descriptor: limit.apart and the entries, each with its length so
// that different descriptors have different keys, or a hash if that is too long. Values that share a
// counter are replaced by their pattern.
func keyOf(l *limit, entries []*rlcommon.RateLimitDescriptor_Entry) string {
	b := make([]byte, 0, 64)
	if l.apart > 0 {
		b = append(strconv.AppendUint(b, uint64(l.apart), 10), '*')
	}
	for i, e := range entries {
		value := e.GetValue()
		if i < len(l.shared) && l.shared[i] != "" {
			value = l.shared[i]
		}
		b = appendPart(appendPart(b, e.GetKey()), value)
	}
	return call.FitKey(string(b))
}

func appendPart(b []byte, part string) []byte {
	return append(append(strconv.AppendInt(b, int64(len(part)), 10), ':'), part...)
}
