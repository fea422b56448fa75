package guard_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/weirlimit/weir/guard"
)

func ExampleNewIdentifier() {
	identifier, err := guard.NewIdentifier(guard.Identity{
		Keys: map[guard.KeyHash]guard.Owner{
			guard.HashKey("s3cr3t"): {ID: "mobile-app", Plan: "pro"},
		},
	})
	if err != nil {
		panic(err)
	}
	for _, key := range []string{"s3cr3t", "guessed"} {
		c := &guard.Credentials{RemoteAddr: "192.0.2.1:4711", Header: http.Header{"X-Api-Key": {key}}}
		s := identifier.Subject(context.Background(), c, identifier.Address(c))
		fmt.Printf("%s plan=%q verified=%t\n", s.Key, s.Plan, s.Verified)
	}
	// Output:
	// key:mobile-app plan="pro" verified=true
	// ip:192.0.2.1 plan="" verified=false
}

// The body of a request names its creator, who has signed it. A middleware verifies the signature
// before it believes the name.
func ExampleWithSubject() {
	public, private, err := ed25519.GenerateKey(strings.NewReader(strings.Repeat("seed", 8)))
	if err != nil {
		panic(err)
	}
	creators := map[string]ed25519.PublicKey{"0xa11ce": public}

	identifier, err := guard.NewIdentifier(guard.Identity{})
	if err != nil {
		panic(err)
	}
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		c := &guard.Credentials{RemoteAddr: r.RemoteAddr, Header: r.Header, TLS: r.TLS}
		fmt.Println(identifier.Subject(r.Context(), c, identifier.Address(c)).Key)
	})
	verifyCreator := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
			if err != nil {
				http.Error(w, "the body cannot be read", http.StatusBadRequest)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body)) // the handler reads it again
			creator, _, _ := strings.Cut(string(body), ":")
			signature, _ := hex.DecodeString(r.Header.Get("X-Signature"))
			if key, known := creators[creator]; known && ed25519.Verify(key, body, signature) {
				r = r.WithContext(guard.WithSubject(r.Context(), guard.User(creator)))
			}
			next.ServeHTTP(w, r)
		})
	}

	const event = "0xa11ce: hello"
	valid := hex.EncodeToString(ed25519.Sign(private, []byte(event)))
	for _, signature := range []string{valid, strings.Repeat("0", len(valid))} {
		r := httptest.NewRequest(http.MethodPost, "/events", strings.NewReader(event))
		r.Header.Set("X-Signature", signature)
		verifyCreator(handler).ServeHTTP(httptest.NewRecorder(), r)
	}
	// Output:
	// user:0xa11ce
	// ip:192.0.2.1
}

func ExampleReadKeys() {
	keys, err := guard.ReadKeys(strings.NewReader(`
# made by: printf %s "$KEY" | sha256sum
4e738ca5563c06cfd0018299933d58db1dd8bf97f6973dc99bf6cdc64b5550bd  mobile-app  pro
`))
	fmt.Println(keys[guard.HashKey("s3cr3t")], err)
	// Output: {mobile-app pro} <nil>
}
