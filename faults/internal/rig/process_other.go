//go:build !linux

package rig

import (
	"os/exec"
	"time"
)

func endWithParent(*exec.Cmd) {}

func usageOf(int) (Usage, error) { return Usage{}, nil }

// Connections is known on Linux only.
func Connections(int) (int, error) { return 0, nil }

type cpuSet struct{}

func only(int) (set cpuSet) { return set }

func bindTo(set cpuSet) cpuSet { return set }

func sleep(d time.Duration) { time.Sleep(d) }
