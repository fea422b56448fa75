//go:build !linux

package server

import "net"

// refuseNew does nothing: a connection that is made between the last Accept and the close of the
// listener is reset.
func refuseNew(*net.TCPListener) error { return nil }
