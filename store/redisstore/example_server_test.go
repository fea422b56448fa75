package redisstore

import (
	"fmt"
	"os"
	"testing"

	"github.com/weirlimit/weir/internal/redistest"
)

// ExampleAddr is where examples find a Redis.
var ExampleAddr string

// withServer runs the tests with a server for the examples, which have no testing.TB
// to start one.
type withServer struct{ m *testing.M }

func (w withServer) Run() int {
	tb := &wholeRun{}
	defer tb.end()
	ExampleAddr = redistest.Start(tb).Addr()
	return w.m.Run()
}

// wholeRun is what redistest needs of a test, for all tests together.
type wholeRun struct {
	testing.TB
	cleanups []func()
}

func (w *wholeRun) Helper()                           {}
func (w *wholeRun) Failed() bool                      { return false }
func (w *wholeRun) Name() string                      { return "examples" }
func (w *wholeRun) Logf(format string, args ...any)   { fmt.Fprintf(os.Stderr, format+"\n", args...) }
func (w *wholeRun) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (w *wholeRun) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (w *wholeRun) Errorf(format string, args ...any) { w.Logf(format, args...) }
func (w *wholeRun) Cleanup(f func())                  { w.cleanups = append(w.cleanups, f) }

func (w *wholeRun) TempDir() string {
	dir, err := os.MkdirTemp("", "weir-examples")
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (w *wholeRun) end() {
	for i := len(w.cleanups) - 1; i >= 0; i-- {
		w.cleanups[i]()
	}
}
