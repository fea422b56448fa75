package rig

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A Go program reads the system's clocks without the C library, so what fakes them for other
// programs does not reach a daemon. BuildWithWall is Build with a standard library whose
// time.Now adds to the wall clock, and not to the monotonic one, the seconds in a file that
// the environment names: see Wall. All of the library is built anew, which takes minutes.
func BuildWithWall(root, dir string) (string, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("rig: go env: %w", err)
	}
	pkg := filepath.Join(strings.TrimSpace(string(out)), "src", "time")
	original := filepath.Join(pkg, "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		return "", fmt.Errorf("rig: %w", err)
	}
	const reads = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	if bytes.Count(source, []byte(reads)) != 1 {
		return "", fmt.Errorf("rig: %s does not read the clock as it used to", original)
	}
	source = bytes.Replace(source, []byte(reads), []byte(reads+"\tsec += wallStep()\n"), 1)
	replaced, added := filepath.Join(dir, "time.go.txt"), filepath.Join(dir, "wallstep.go.txt")
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		original: replaced, filepath.Join(pkg, "wallstep.go"): added,
	}})
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	for file, content := range map[string][]byte{replaced: source, added: []byte(wallStep), list: overlay} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return "", fmt.Errorf("rig: %w", err)
		}
	}
	return build(root, filepath.Join(dir, "weir-wall"), "-overlay", list)
}

const wallVariable = "WEIR_FAULTS_WALL"

// wallStep is a file of package time. Now is also called where the runtime allows no system
// calls, so the file is mapped into memory once: eight bytes, as the machine has them.
const wallStep = `package time

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

var wallSeconds = mapWallSeconds()

func mapWallSeconds() *int64 {
	file, ok := syscall.Getenv("` + wallVariable + `")
	if !ok {
		return new(int64)
	}
	fd, err := syscall.Open(file, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		panic(err)
	}
	defer syscall.Close(fd)
	page, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	return (*int64)(unsafe.Pointer(&page[0]))
}

func wallStep() int64 { return atomic.LoadInt64(wallSeconds) }
`

// Wall is the wall clock of daemons that are started after it was made and that
// BuildWithWall has built.
type Wall struct {
	t    *testing.T
	file string
	step time.Duration
}

// NewWall returns a clock that shows the time at, as near as whole seconds allow.
func NewWall(t *testing.T, at time.Time) *Wall {
	t.Helper()
	w := &Wall{t: t, file: filepath.Join(t.TempDir(), "wall")}
	w.Step(time.Until(at))
	t.Setenv(wallVariable, w.file)
	return w
}

// Step moves the clock by a whole number of seconds.
func (w *Wall) Step(by time.Duration) {
	w.t.Helper()
	w.step += by.Round(time.Second)
	f, err := os.OpenFile(w.file, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		w.t.Fatalf("rig: %v", err)
	}
	defer f.Close()
	if err := binary.Write(f, binary.NativeEndian, int64(w.step/time.Second)); err != nil { // in one write
		w.t.Fatalf("rig: %v", err)
	}
}

// Now is what the clock shows.
func (w *Wall) Now() time.Time { return time.Now().Add(w.step) }
