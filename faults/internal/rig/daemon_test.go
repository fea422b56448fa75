package rig

import (
	"os"
	"runtime"
	"testing"
	"time"
)

func TestStoreIs(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1000, 0)
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	d := &Daemon{log: []line{
		{At: at(1), Msg: "listening"},
		{At: at(2), Msg: msgBreakerOpened, Part: 1},
		{At: at(3), Msg: msgBreakerOpened, Part: 2},
		{At: at(4), Msg: msgBreakerClosed, Part: 1},
		{At: at(5), Msg: msgBreakerClosed, Part: 2},
		{At: at(6), Msg: "something"},
		{At: at(7), Msg: msgBreakerOpened},
	}}
	for _, tt := range []struct {
		unavailable bool
		since       int
		want        time.Time
		ok          bool
	}{
		{false, 0, time.Time{}, true},
		{false, 1, time.Time{}, true},
		{true, 0, at(2), true},
		{true, 1, at(2), true},
		{true, 4, at(2), true}, // it was unavailable before, and still is
		{false, 3, at(5), true},
		{false, 4, at(5), true},
		{false, 6, at(5), true},
		{true, 6, at(7), true},
		{true, 8, at(7), true},
		{false, 8, at(7), false},
	} {
		got, ok := d.storeIs(tt.unavailable, at(tt.since))
		if ok != tt.ok || !got.Equal(tt.want) {
			t.Errorf("unavailable %v since %d: %v, %v; want %v, %v", tt.unavailable, tt.since, got, ok, tt.want, tt.ok)
		}
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("known on Linux only")
	}
	for begin := time.Now(); time.Since(begin) < 50*time.Millisecond; { // some ticks
	}
	u, err := usageOf(os.Getpid())
	if err != nil || u.RSS < 1<<20 || u.Threads < 1 || u.FDs < 3 || u.CPU <= 0 {
		t.Errorf("this process has %+v, %v", u, err)
	}
}
