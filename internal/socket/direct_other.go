//go:build !linux || !(amd64 || arm64)

package socket

import "net"

// Direct returns c: how it could be made cheaper here, nobody has tried.
func Direct(c net.Conn) net.Conn { return c }
