//go:build !linux

package pacer

// sleepFine does nothing here: the caller yields in a loop instead.
func sleepFine(int64) {}
