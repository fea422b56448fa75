//go:build !linux

package rig

import "os/exec"

func endWithParent(*exec.Cmd) {}

func usageOf(int) (Usage, error) { return Usage{}, nil }

// Connections is known on Linux only.
func Connections(int) (int, error) { return 0, nil }
