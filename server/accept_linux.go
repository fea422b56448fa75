package server

import (
	"net"

	"golang.org/x/sys/unix"
)

// refuseNew has the kernel drop requests for new TCP connections, while those that are being made
// are finished. Otherwise a connection could be made between the last Accept and the close of the
// listener, which resets it. The caller's kernel tries again, and finds the listener closed.
func refuseNew(l *net.TCPListener) error {
	const flags, syn = 13, 0x02 // of the TCP header
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: flags},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, Jf: 1, K: syn},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
	}
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	})
	if failed != nil {
		return failed
	}
	return err
}
