package upstream

import (
	"net"
	"testing"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var closedScheme = secret.New("ftp://canary.example")

// closedPort returns the URL of a port at which nobody listens.
func closedPort(t *testing.T) secret.Secret {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return secret.New("http://" + l.Addr().String() + "/canary")
}
