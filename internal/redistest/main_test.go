package redistest

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(dieVariable) != "" {
		dieWithServer()
	}
	goleak.VerifyTestMain(m)
}

// dieVariable in the environment makes this test program start a server, print its
// process and die without a cleanup.
const dieVariable = "REDISTEST_DIE"

func dieWithServer() {
	server := Start(&recorder{})
	fmt.Println(server.process().pid())
	os.Exit(1)
}

// recorder is a testing.TB for tests that are expected to fail.
type recorder struct {
	testing.TB // nil: a method that is missing below panics

	mu       sync.Mutex // guards the fields below
	text     string
	failed   bool
	cleanups []func()
}

// record runs f as a test, with its cleanups.
func record(f func(t testing.TB)) *recorder {
	r := &recorder{}
	done := make(chan struct{})
	go func() { // its own, because Fatal ends it
		defer close(done)
		defer r.cleanUp()
		f(r)
	}()
	<-done
	return r
}

func (r *recorder) cleanUp() {
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
}

func (r *recorder) Helper()                      {}
func (r *recorder) Cleanup(f func())             { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(f string, args ...any) { r.Logf(f, args...); r.fail() }
func (r *recorder) Fatal(args ...any)            { r.Errorf("%s", fmt.Sprint(args...)); runtime.Goexit() }
func (r *recorder) Fatalf(f string, args ...any) { r.Errorf(f, args...); runtime.Goexit() }

func (r *recorder) Logf(f string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text += fmt.Sprintf(f, args...) + "\n"
}

func (r *recorder) fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}
