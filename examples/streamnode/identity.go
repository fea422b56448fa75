package main

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"github.com/weirlimit/weir/guard"
)

// identity is a key pair. The address is made of the public key, so that a signature proves an address.
type identity struct{ key ed25519.PrivateKey }

// newIdentity returns the identity of a name. Real keys are random.
func newIdentity(name string) identity {
	seed := sha256.Sum256([]byte("demonstration key of " + name))
	return identity{ed25519.NewKeyFromSeed(seed[:])}
}

func (i identity) address() string { return addressOf(i.key.Public().(ed25519.PublicKey)) }

func addressOf(public ed25519.PublicKey) string {
	hash := sha256.Sum256(public)
	return "0x" + hex.EncodeToString(hash[:20])
}

// sign returns the public key and the signature of a message.
func (i identity) sign(message string) string {
	public := i.key.Public().(ed25519.PublicKey)
	return base64.RawURLEncoding.EncodeToString(append(public[:len(public):len(public)], ed25519.Sign(i.key, []byte(message))...))
}

// signer returns the address of whoever signed the message.
func signer(message, signed string) (address string, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(signed)
	if err != nil || len(b) != ed25519.PublicKeySize+ed25519.SignatureSize {
		return "", false
	}
	public, signature := ed25519.PublicKey(b[:ed25519.PublicKeySize]), b[ed25519.PublicKeySize:]
	return addressOf(public), ed25519.Verify(public, []byte(message), signature)
}

// token returns a bearer token. Those of a real service expire.
func (i identity) token() string { return i.sign("session") }

// authenticate finds the user of a call by the signed token. It is called between the two stages of the
// guard, the first of which limits each address. Without a token, the call is charged to its address.
func authenticate(ctx context.Context, header http.Header) (context.Context, error) {
	token, ok := strings.CutPrefix(header.Get("Authorization"), "Bearer ")
	if !ok {
		return ctx, nil
	}
	address, ok := signer("session", token)
	if !ok {
		return nil, connect.NewError(connect.CodeUnauthenticated, errors.New("the token is invalid"))
	}
	return guard.WithSubject(ctx, guard.User(address)), nil
}

// event returns an event that i has signed.
func (i identity) event(text string) map[string]any {
	return map[string]any{"event": text, "creator": i.address(), "signature": i.sign("event " + text)}
}

// creator returns the user who signed an event. The field "creator" alone proves nothing: a forged event
// is charged to whoever sent it. In a real node the signature also covers the hash of the stream's last
// miniblock, so that nobody can send it again to use up its creator's limits.
func creator(_ context.Context, m any) (guard.Subject, bool) {
	e, _ := m.(*message)
	address, ok := signer("event "+text(e, "event"), text(e, "signature"))
	return guard.User(address), ok && address == text(e, "creator")
}
