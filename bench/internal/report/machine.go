package report

import (
	"bufio"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
)

// Machine is where a report was made, and of what.
type Machine struct {
	CPU     string            // model name, for example "AMD EPYC 7B13"
	Cores   int               // processors that Go uses
	System  string            // for example "linux/amd64"
	Go      string            // for example "go1.26.8"
	Modules map[string]string // version of each dependency, by module path
}

// ThisMachine describes the machine and the program that is running.
func ThisMachine() Machine {
	m := Machine{
		CPU:     "unknown processor",
		Cores:   runtime.GOMAXPROCS(0),
		System:  runtime.GOOS + "/" + runtime.GOARCH,
		Go:      runtime.Version(),
		Modules: make(map[string]string),
	}
	if model := cpuModel("/proc/cpuinfo"); model != "" {
		m.CPU = model
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			m.Modules[dep.Path] = dep.Version
		}
	}
	return m
}

// cpuModel returns the first model name in a file like Linux's /proc/cpuinfo,
// or nothing if there is none.
func cpuModel(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if key, value, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
