package redisconn

import (
	"errors"
	"net"
	"strconv"
	"strings"
)

const unixScheme = "unix://"

// isSocket says whether an address is the path of a socket.
func isSocket(addr string) bool { return strings.HasPrefix(addr, "/") }

var (
	errAddrForm = errors.New("want host:port, or the path of a socket that begins with /")
	errAddrHost = errors.New("there is no host before the port")
	errAddrText = errors.New("the host has characters that hosts do not have; a user and a password do not belong here")
	errAddrPort = errors.New("the port must be a number from 1 to 65535")
)

// checkAddr says what is wrong with an address, without quoting it.
func checkAddr(addr string) error {
	if isSocket(addr) {
		if strings.HasSuffix(addr, "/") || strings.ContainsRune(addr, 0) {
			return errAddrForm
		}
		return nil
	}
	host, port, err := net.SplitHostPort(addr)
	switch {
	case err != nil:
		return errAddrForm
	case host == "":
		return errAddrHost
	case strings.ContainsFunc(host, noHostRune):
		return errAddrText
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return errAddrPort
	}
	return nil
}

// noHostRune says whether r is in no host name and no IP address, zones included.
func noHostRune(r rune) bool {
	return r <= ' ' || r == 0x7f || strings.ContainsRune(`@/\,;?#"'`, r)
}
