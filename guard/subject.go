package guard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/weirlimit/weir"
)

// Subject is who a request is charged to. Make one with User, or let an Identifier find it.
type Subject struct {
	// Key is the rate-limit key. Its prefix says how the subject was identified, so that subjects
	// of different kinds never share a count: "user:alice", "key:mobile-app",
	// "cert:spiffe://example.org/billing", "ip:192.0.2.1", or Unknown.
	Key string

	// Plan is the plan of the subject, such as "pro", or "". It must come from a verified claim,
	// role or key.
	Plan string

	// Verified says that the subject was authenticated. An address is not.
	Verified bool
}

// Unknown is the key of all callers of whom not even the address is known. They share one count.
const Unknown = "unknown"

// User returns the subject of an authenticated user, service or account. No ID is special: that of
// the zero address of Ethereum is a user like any other. Without an ID nobody is authenticated, so
// that User("") is not verified and its key is Unknown.
func User(id string) Subject { return verified("user:", id) }

// verified returns the subject of an ID, which is not verified if the ID is "".
func verified(kind, id string) Subject {
	if id == "" {
		return Subject{Key: Unknown}
	}
	return Subject{Key: fit(kind + id), Verified: true}
}

// fit returns a text that can be a key: one that is too long is replaced by its hash. No kind begins
// with "sha256:", so that nobody can choose an ID to share the count of another.
func fit(key string) string {
	if len(key) <= weir.MaxKeyBytes {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}

type subjectKey struct{}

// WithSubject returns a context for a request of an authenticated subject. Programs that
// authenticate their callers themselves call it before the stage after authentication. An Identifier
// ignores subjects that have no key or are not Verified.
//
// It is also the way to charge an identity that the body of a request names, such as the creator of
// a signed event: a middleware of the program reads the body, verifies the signature, and calls
// WithSubject only if it is valid, as the example shows. An identity that is not verified must not be
// charged, because then anybody could use up the limits of others by naming them. Such a middleware
// belongs after the stage before authentication, which limits how many bodies it has to verify.
func WithSubject(ctx context.Context, s Subject) context.Context {
	return context.WithValue(ctx, subjectKey{}, s)
}

// SubjectOf returns the subject of WithSubject.
func SubjectOf(ctx context.Context) (Subject, bool) {
	s, ok := ctx.Value(subjectKey{}).(Subject)
	return s, ok
}
