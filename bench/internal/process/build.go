package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/weirlimit/weir/bench/internal/harness"
)

// A Program is something to build.
type Program struct {
	// Name is what the file is called, for example "weir".
	Name string

	// Module is the directory of its module as seen from the bench module's, for
	// example "..".
	Module string

	// Package is its main package, for example "./cmd/weir".
	Package string
}

var (
	building sync.Mutex // guards the field below
	built    = make(map[Program]string)
)

// Build builds the program into .bin/bench, where the next run finds it again, and returns
// its path. This process builds each program once. The error is harness.Missing if the
// machine lacks what it takes.
func (p Program) Build() (string, error) {
	building.Lock()
	defer building.Unlock()
	if path, ok := built[p]; ok {
		return path, nil
	}
	bench, err := benchDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(bench, "..", ".bin", "bench")
	unlock, err := lock(dir)
	if err != nil {
		return "", err
	}
	defer unlock()
	path := filepath.Join(dir, p.Name)
	cmd := exec.Command("go", "build", "-o", path, p.Package)
	cmd.Dir = filepath.Join(bench, p.Module)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", p.Name, err, out)
	}
	built[p] = path
	return path, nil
}

// lock makes the directory, and keeps other processes from building there until unlock:
// go test runs packages at once, and none may start a program that is being written.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(dir, ".lock"))
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil // which unlocks
}

// Version returns which version of a module the program's module asks for.
func (p Program) Version(module string) (string, error) {
	bench, err := benchDir()
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Version}}", module)
	cmd.Dir = filepath.Join(bench, p.Module)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("version of %s: %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// benchDir returns where the bench module is: the go command knows the module of the
// directory that the benchmarks or their tests run in.
func benchDir() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if errors.Is(err, exec.ErrNotFound) {
		return "", harness.Missing{What: "go command"}
	}
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	file := strings.TrimSpace(string(out))
	if file == "" || file == os.DevNull {
		return "", errors.New("programs can be built in the directory of the bench module only")
	}
	return filepath.Dir(file), nil
}
