//go:build race

package socket

const racing = true
