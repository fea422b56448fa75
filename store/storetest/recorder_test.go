package storetest

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// A recorder is a testing.TB, as far as the suite uses one, for tests that are
// expected to fail.
type recorder struct {
	name string
	mu   sync.Mutex // guards the fields below
	logs []string
	bad  bool
}

func (r *recorder) Helper()      {}
func (r *recorder) Name() string { return r.name }

func (r *recorder) Log(args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logs = append(r.logs, fmt.Sprint(args...))
}

func (r *recorder) Fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bad = true
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bad
}

func (r *recorder) FailNow()                    { r.Fail(); runtime.Goexit() }
func (r *recorder) SkipNow()                    { runtime.Goexit() }
func (r *recorder) Logf(f string, args ...any)  { r.Log(fmt.Sprintf(f, args...)) }
func (r *recorder) Error(args ...any)           { r.Log(args...); r.Fail() }
func (r *recorder) Errorf(f string, a ...any)   { r.Logf(f, a...); r.Fail() }
func (r *recorder) Fatal(args ...any)           { r.Log(args...); r.FailNow() }
func (r *recorder) Fatalf(f string, a ...any)   { r.Logf(f, a...); r.FailNow() }
func (r *recorder) Skip(args ...any)            { r.Log(args...); r.SkipNow() }
func (r *recorder) Skipf(f string, args ...any) { r.Logf(f, args...); r.SkipNow() }

// record runs one test of the suite on a store.
func record(t *testing.T, s *Store, test test) *recorder {
	rec := &recorder{name: test.name}
	done := make(chan struct{})
	go func() { // its own, because a failing test ends it
		defer close(done)
		r := s.open(t, test.opts)
		r.t = rec
		test.run(r)
	}()
	<-done
	return rec
}

// lookUp returns a test of the suite by its path.
func lookUp(t *testing.T, path string) test {
	t.Helper()
	for _, g := range groups {
		for _, test := range g.tests {
			if g.name+"/"+test.name == path {
				return test
			}
		}
	}
	t.Fatalf("the suite has no test %q", path)
	return test{}
}
