package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/internal/fielderr"
)

// Listener configures where to listen.
type Listener struct {
	// Address is host:port, or unix: and the path of a socket, for example
	// "unix:/run/weir/http.sock". Port 0 takes a free port, which OnListen receives.
	Address string

	// Mode is who may connect to a Unix socket: those who may write to it. The default is 0660, the
	// owner and the group.
	Mode fs.FileMode

	// Group is the name or number of a Unix socket's group, which the process must belong to
	// unless it is root's. The default is the group of the process.
	Group string

	// TLS, if set, makes the listener require TLS.
	TLS *TLS
}

// TLS is what a listener needs for TLS 1.2 and later. Its files are read again by Reload.
type TLS struct {
	CertFile, KeyFile string // PEM

	// ClientCAFile, if set, lets callers authenticate with a certificate that one of its
	// authorities has signed.
	ClientCAFile string

	// RequireClient refuses connections without such a certificate.
	RequireClient bool
}

// Bound is where a server listens.
type Bound struct {
	HTTP  net.Addr
	GRPC  net.Addr // nil if there is no such listener, like the next two
	RESP  net.Addr
	Admin net.Addr
}

// A ListenError is why a server could not listen.
type ListenError struct {
	Listener string // the field of Config in lower case: http, grpc, resp or admin
	Err      error
}

func (e *ListenError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *ListenError) Unwrap() error { return e.Err }

// socketPath returns the path of a Unix socket's address.
func (l Listener) socketPath() (string, bool) { return strings.CutPrefix(l.Address, "unix:") }

// check returns everything that is wrong with the listener of a field of Config, unless it has no
// address. Remedy is what makes an address safe that other machines can reach, "" if it is.
func (l Listener) check(field, remedy string) error {
	if l.Address == "" {
		return nil
	}
	var problems []error
	wrong := func(bad bool, problem string, below ...any) {
		if bad {
			problems = append(problems, fielderr.New("server", problem, append([]any{field}, below...)...))
		}
	}
	path, isSocket := l.socketPath()
	_, port, err := net.SplitHostPort(l.Address)
	_, portErr := strconv.ParseUint(port, 10, 16)
	switch {
	case isSocket:
		wrong(!filepath.IsAbs(path), "the path of a socket must begin with /: unix:/run/weir/http.sock", "Address")
		wrong(l.Mode != l.Mode.Perm(), fmt.Sprintf("%#o must be permissions, such as 0660", l.Mode), "Mode")
	case err != nil:
		wrong(true, "must be host:port, such as "+DefaultHTTP+", or unix:/path", "Address")
	case portErr != nil:
		wrong(true, "the port must be a number from 0 to 65535", "Address")
	default:
		wrong(!l.IsLocal() && remedy != "", "is not loopback, so any host that reaches it could use it: "+remedy, "Address")
	}
	wrong(!isSocket && (l.Mode != 0 || l.Group != ""), "mode and group are those of a Unix socket: leave them out, or set address: unix:/path")
	if l.TLS != nil {
		wrong(isSocket, "a socket needs no TLS: leave it out", "TLS")
		wrong(l.TLS.CertFile == "" || l.TLS.KeyFile == "", "needs a certificate and its key", "TLS")
		wrong(l.TLS.RequireClient && l.TLS.ClientCAFile == "", "needs client_ca_file: the authorities that sign the certificates of callers", "TLS", "RequireClient")
	}
	return errors.Join(problems...)
}

// IsLocal reports whether only this machine can reach the address. It does not query DNS: the
// only name that it accepts is localhost.
func (l Listener) IsLocal() bool {
	if _, ok := l.socketPath(); ok {
		return true
	}
	host, _, err := net.SplitHostPort(l.Address)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && addr.IsLoopback()
}

// listen binds the address and checks the result, since the hosts file can map localhost to
// any address.
func (l Listener) listen(ctx context.Context, maxConns int) (*capped, error) {
	network, address := "tcp", l.Address
	if path, ok := l.socketPath(); ok {
		network, address = "unix", path
		if err := removeStale(ctx, path); err != nil {
			return nil, err
		}
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // its sockets take no filter: see refuseNew
	bound, err := lc.Listen(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	if err := errors.Join(l.checkBound(bound.Addr()), l.permit()); err != nil {
		bound.Close()
		return nil, err
	}
	return newCapped(bound, maxConns), nil
}

// permit sets the group and the mode of a Unix socket. Until then only its owner can connect, with
// the usual umask.
func (l Listener) permit() error {
	path, ok := l.socketPath()
	if !ok {
		return nil
	}
	if l.Group != "" {
		gid, err := groupID(l.Group)
		if err == nil {
			err = os.Chown(path, -1, gid)
		}
		if err != nil {
			return fmt.Errorf("server: unix:%s: group %q: %w; use a group of the user that runs the daemon", path, l.Group, err)
		}
	}
	if err := os.Chmod(path, cmp.Or(l.Mode, 0o660)); err != nil {
		return fmt.Errorf("server: unix:%s: %w", path, err)
	}
	return nil
}

// groupID returns the number of a group.
func groupID(group string) (int, error) {
	if id, err := strconv.Atoi(group); err == nil {
		return id, nil
	}
	found, err := user.LookupGroup(group)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(found.Gid)
}

// checkBound returns an error if the configured address is local and the bound one is not.
func (l Listener) checkBound(addr net.Addr) error {
	if tcp, ok := addr.(*net.TCPAddr); ok && l.IsLocal() && !tcp.IP.IsLoopback() {
		return fmt.Errorf("server: %q: is %v here, not loopback", l.Address, addr)
	}
	return nil
}

// removeStale removes the socket of a server that crashed. It returns an error if a process
// still accepts connections on it.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&os.ModeSocket == 0 {
		return nil // Listen reports what is wrong
	}
	var d net.Dialer
	if conn, err := d.DialContext(ctx, "unix", path); err == nil {
		conn.Close()
		return fmt.Errorf("server: unix:%s: somebody listens there already", path)
	}
	return os.Remove(path)
}

// config reads a listener's files.
func (t *TLS) config() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("server: TLS: %w", err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}}
	if t.ClientCAFile == "" {
		return c, nil
	}
	pem, err := os.ReadFile(t.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("server: TLS: %w", err)
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.VerifyClientCertIfGiven
	if t.RequireClient {
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("server: TLS: %s: has no certificate in it", t.ClientCAFile)
	}
	return c, nil
}
