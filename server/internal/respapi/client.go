package respapi

import (
	"fmt"
	"strings"

	"github.com/weirlimit/weir/internal/resp"
)

// clientCommand answers CLIENT, which clients send when they connect.
//
// TRACKING is accepted. It requests invalidations of keys that were read; no key can be read
// here, so there are none. rueidis sends it by default.
func (c *conn) clientCommand(args [][]byte) {
	switch sub := args[1]; {
	case isWord(sub, "SETINFO"), isWord(sub, "TRACKING"), isWord(sub, "CACHING"),
		isWord(sub, "NO-EVICT"), isWord(sub, "NO-TOUCH"), isWord(sub, "CAPA"):
		c.ok()
	case isWord(sub, "REPLY") && len(args) == 3 && isWord(args[2], "ON"):
		c.ok()
	case isWord(sub, "REPLY"):
		c.fail("ERR CLIENT REPLY: every command is answered; only ON is possible")
	case isWord(sub, "ID"):
		c.out = resp.AppendInt(c.out, c.id)
	case isWord(sub, "GETNAME") && c.name == "":
		c.out = c.version.AppendNull(c.out)
	case isWord(sub, "GETNAME"):
		c.out = resp.AppendBulk(c.out, c.name)
	case isWord(sub, "SETNAME") && len(args) == 3:
		c.setName(string(args[2]))
	case isWord(sub, "INFO"), isWord(sub, "LIST"): // of this connection alone
		c.out = c.version.AppendText(c.out, c.describe())
	default:
		c.fail("ERR unknown subcommand or wrong number of arguments for '" + clip(sub) + "'")
	}
}

const badClientName = "ERR Client names cannot contain spaces, newlines or special characters."

func (c *conn) setName(name string) {
	if !isClientName(name) {
		c.fail(badClientName)
		return
	}
	c.name = name
	c.ok()
}

// isClientName reports whether name may appear in CLIENT LIST. The empty name removes the name.
func isClientName(name string) bool {
	outside := func(r rune) bool { return r < '!' || r > '~' }
	return len(name) <= 256 && !strings.ContainsFunc(name, outside)
}

func (c *conn) describe() string {
	return fmt.Sprintf("id=%d addr=%s laddr=%s name=%s db=0 user=%s resp=%d\n",
		c.id, c.net.RemoteAddr(), c.net.LocalAddr(), c.name, c.caller().Name(), c.version)
}
