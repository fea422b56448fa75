package redistest

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestStart(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	s := Start(t)
	t.Logf("started in %v", time.Since(begin))
	wantText(t, s, "PONG", "PING")
	wantText(t, s, "OK", "SET", "key", "a\r\nb")
	wantText(t, s, "a\r\nb", "GET", "key")
	wantText(t, s, "3", "RPUSH", "list", "x", "y", "z")
	if r := s.MustDo("GET", "none"); !r.Nil {
		t.Errorf("GET of a missing key = %+v, want nil", r)
	}
	if r := s.MustDo("LRANGE", "list", "0", "-1"); len(r.Items) != 3 || r.Items[2].Text != "z" {
		t.Errorf("LRANGE = %+v", r)
	}
	if port := s.Port(); port < firstPort || port >= firstPort+portCount {
		t.Errorf("port %d is out of range", port)
	}
}

func TestErrorReply(t *testing.T) {
	t.Parallel()
	s := Start(t)
	wantError(t, s, "ERR wrong number of arguments", "GET")
	r := s.MustDo("EVAL", "return {1, redis.error_reply('NO')}", "0")
	if len(r.Items) != 2 || r.Items[1].Err == nil {
		t.Errorf("reply = %+v, want an error inside", r)
	}
}

func TestCounters(t *testing.T) {
	t.Parallel()
	s := Start(t)
	before := s.UsedMemory()
	s.MustDo("SET", "key", strings.Repeat("x", 1<<20))
	if grown := s.UsedMemory() - before; grown < 1<<20 || grown > 3<<20 {
		t.Errorf("1 MiB grew used memory by %d", grown)
	}
	s.MustDo("CONFIG", "GET", "port")
	for name, want := range map[string]int64{"SET": 1, "get": 0, "config|get": 1} {
		if got := s.CommandCalls(name); got != want {
			t.Errorf("calls of %s = %d, want %d", name, got, want)
		}
	}
}

func TestKillAndRestart(t *testing.T) {
	t.Parallel()
	s := Start(t)
	addr := s.Addr()
	s.MustDo("SET", "key", "value")
	s.Kill()
	if _, err := s.Do("PING"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("PING of a killed server: %v, want refused", err)
	}
	s.Restart()
	if s.Addr() != addr {
		t.Errorf("after a restart it is at %s, before at %s", s.Addr(), addr)
	}
	if r := s.MustDo("GET", "key"); !r.Nil {
		t.Errorf("a server without persistence kept %+v", r)
	}
	s.Restart() // one that runs
	wantText(t, s, "PONG", "PING")
}

func TestStopKeepsWhatConfigKeeps(t *testing.T) {
	t.Parallel()
	s := Start(t, Config("appendonly", "yes"))
	s.MustDo("SET", "key", "value")
	s.Stop()
	if s.up() {
		t.Error("it runs after Stop")
	}
	s.Restart()
	wantText(t, s, "value", "GET", "key")
}

func TestStopOfPausedServer(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.Pause()
	s.Stop()
	if _, err := s.Do("PING"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("PING of a stopped server: %v, want refused", err)
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.Pause()
	if s.up() {
		t.Error("a paused server counts as up")
	}
	_, err := s.do(500*time.Millisecond, "INCR", "key") // it was sent by then
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("INCR at a paused server: %v, want a time-out", err)
	}
	s.Resume()
	// The system accepted the INCR, so it may be executed after all: in doubt.
	await(t, "the INCR of the paused server", startLimit, func() error {
		if s.MustDo("GET", "key").Text != "1" {
			return errors.New("not executed")
		}
		return nil
	})
}

func TestConfig(t *testing.T) {
	t.Parallel()
	s := Start(t, Config("maxmemory", "1", "maxmemory-policy", "noeviction"))
	wantError(t, s, "OOM command not allowed", "SET", "key", "value")
}

func TestPassword(t *testing.T) {
	t.Parallel()
	const odd = "p\" '\\x\r\nä"
	for _, user := range []string{"", "default", "alice"} {
		s := Start(t, Password(user, odd))
		wantText(t, s, "PONG", "PING")
		anyone := &Server{t: t, port: s.port}
		wantError(t, anyone, "NOAUTH", "PING")
		wrong := &Server{t: t, port: s.port, set: settings{user: user, password: "wrong"}}
		wantError(t, wrong, "WRONGPASS", "PING")
		name := map[bool]string{true: "default", false: user}[user == ""]
		wantText(t, s, name, "ACL", "WHOAMI")
	}
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	s := Start(t, UnixSocket())
	conn, err := net.DialTimeout("unix", s.Socket(), commandTimeout)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r, err := newClient(conn).do("PING")
	if err != nil || r.Text != "PONG" {
		t.Errorf("PING = %+v, %v", r, err)
	}
}

func TestMissingProgram(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	r := record(func(t testing.TB) { Start(t) })
	if !r.failed || !strings.Contains(r.text, "apt-get install redis-server") {
		t.Errorf("failed = %v, %q; want what to install", r.failed, r.text)
	}
}

func TestBadConfig(t *testing.T) {
	t.Parallel()
	r := record(func(t testing.TB) { Start(t, Config("no-such-setting", "1")) })
	if !r.failed || !strings.Contains(r.text, "ended before it answered") || !strings.Contains(r.text, "no-such-setting") {
		t.Errorf("failed = %v, %q; want Redis's own words", r.failed, r.text)
	}
}

// A server whose port is taken before it listens moves to another one, and does not
// mistake the other's answers for its own.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	first := Start(t)
	second := &Server{t: t, dir: t.TempDir(), port: first.Port()}
	second.writeConf()
	second.launch()
	t.Cleanup(second.cleanUp)
	second.awaitReady()
	if second.Port() == first.Port() {
		t.Fatal("both have one port")
	}
	if got := second.Info("server")["process_id"]; got != strconv.Itoa(second.process().pid()) {
		t.Errorf("process %s answers, want %d", got, second.process().pid())
	}
}

func TestEndsWithTest(t *testing.T) {
	t.Parallel()
	for _, fail := range []bool{false, true} {
		var s *Server
		r := record(func(t testing.TB) {
			s = Start(t)
			s.Pause() // must not hinder
			if fail {
				t.Errorf("failed")
			}
		})
		if !s.process().ended() {
			t.Error("the server outlives the test")
		}
		if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
			t.Errorf("its directory: %v, want none", err)
		}
		if got := strings.Contains(r.text, "Ready to accept connections"); got != fail {
			t.Errorf("failed = %v, but the log has: %v", fail, got)
		}
	}
}

// A test process that dies, for example by a time-out, runs no cleanup.
func TestEndsWithProcess(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells children of their parent's death")
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), dieVariable+"=1", "TMPDIR="+t.TempDir())
	out, _ := cmd.Output() // it exits with 1
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the end of the server", startLimit, func() error {
		if gone(pid) {
			return nil
		}
		return errors.New("it runs")
	})
}

// gone says whether a process has ended, also if nobody has asked for its result:
// the third field of its status is then Z.
func gone(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func wantText(t *testing.T, s *Server, want string, command ...string) {
	t.Helper()
	r, err := s.Do(command...)
	if err != nil || r.Text != want {
		t.Errorf("%q = %+v, %v; want %q", command, r, err, want)
	}
}

func wantError(t *testing.T, s *Server, want string, command ...string) {
	t.Helper()
	r, err := s.Do(command...)
	var reply Error
	if !errors.As(err, &reply) || !strings.HasPrefix(string(reply), want) {
		t.Errorf("%q = %+v, %v; want %q", command, r, err, want)
	}
}
