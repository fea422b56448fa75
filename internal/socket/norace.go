//go:build !race

package socket

const racing = false
