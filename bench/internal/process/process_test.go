package process

import (
	"errors"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestProcess(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // as if it were the process's
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cmd := exec.Command("sh", "-c", "echo here; read line")
	if _, err := cmd.StdinPipe(); err != nil { // it waits for a line that never comes
		t.Fatal(err)
	}
	p, err := Start(cmd, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); p.said.String() == ""; time.Sleep(time.Millisecond) { // until then it may hardly have any memory
		if time.Since(began) > 10*time.Second {
			t.Fatal("it says nothing")
		}
	}
	if cpu, err := p.CPUTime(); err != nil || cpu < 0 || cpu > time.Second {
		t.Errorf("it used %v, error %v", cpu, err)
	}
	if rss, err := p.Memory(); err != nil || rss < 10<<10 || rss > 1<<30 {
		t.Errorf("it has %d bytes, error %v", rss, err)
	}
	p.Stop()
	if _, err := p.CPUTime(); err == nil {
		t.Error("it has not ended")
	}
}

func TestEndedAtOnce(t *testing.T) {
	addr, err := FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	_, err = Start(exec.Command("sh", "-c", "echo no such thing >&2; exit 1"), addr)
	if !errors.Is(err, ErrEnded) || !strings.Contains(err.Error(), "ended at once: no such thing") {
		t.Errorf("error %v", err)
	}
}

func TestTail(t *testing.T) {
	var said tail
	for range lastWords {
		_, _ = said.Write([]byte("ab"))
	}
	_, _ = said.Write([]byte("end"))
	if s := said.String(); len(s) != lastWords || !strings.HasSuffix(s, "abend") {
		t.Errorf("%d bytes are kept: %q", len(s), s)
	}
}

func TestStat(t *testing.T) {
	for _, tt := range []struct {
		stat string
		want time.Duration
		ok   bool
	}{
		{"7 (a b) c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20", 2 * time.Second, true},
		{"7 (weir) S 1 2", 0, false},
		{"7 (weir) S 1 2 3 4 5 6 7 8 9 10 x 50 0", 0, false},
	} {
		got, err := cpuTime([]byte(tt.stat))
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%q: %v, %v", tt.stat, got, err)
		}
	}
}

func TestStatus(t *testing.T) {
	if got, err := residentSize("Name:\tweir\nVmRSS:\t    2048 kB\nThreads:\t5\n"); got != 2<<20 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
	if _, err := residentSize("Name:\tweir\n"); err == nil {
		t.Error("no error")
	}
}
