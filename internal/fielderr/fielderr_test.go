package fielderr

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestError(t *testing.T) {
	for want, e := range map[string]*Error{
		"redisconn: DB -1: must not be negative":       {Package: "redisconn", Path: []any{"DB"}, Value: -1, Problem: "must not be negative"},
		`redisconn: Username "u": needs a password`:    {Package: "redisconn", Path: []any{"Username"}, Value: "u", Problem: "needs a password"},
		"a: Timeout 1s: is too short":                  {Package: "a", Path: []any{"Timeout"}, Value: time.Second, Problem: "is too short"},
		"envoy: [1].Descriptors[0].Key: is missing":    New("envoy", "is missing", 1, "Descriptors", 0, "Key"),
		`tracing: Headers."": is no name`:              New("tracing", "is no name", "Headers", ""),
		"tracing: Headers.x-key: has more than a line": New("tracing", "has more than a line", "Headers", "x-key"),
	} {
		if got := e.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestSplit(t *testing.T) {
	a, b, c := errors.New("a"), errors.New("b"), New("p", "c", "F")
	if got := fmt.Sprint(Split(errors.Join(a, errors.Join(b, nil, c)))); got != "[a b p: F: c]" {
		t.Error(got)
	}
	if Split(nil) != nil || len(Split(c)) != 1 {
		t.Error("nil and single errors are not split")
	}
}
