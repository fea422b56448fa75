package respapi

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

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
	case isWord(sub, "SETNAME") && len(args) == 3 && !isClientName(string(args[2])):
		c.fail(badClientName)
	case isWord(sub, "SETNAME") && len(args) == 3:
		c.name = string(args[2])
		c.ok()
	case isWord(sub, "INFO"), isWord(sub, "LIST"): // of this connection alone
		c.out = c.version.AppendText(c.out, c.describe())
	default:
		c.fail("ERR unknown subcommand or wrong number of arguments for '" + clip(sub) + "'")
	}
}

const badClientName = "ERR Client names cannot contain spaces, newlines or special characters."

// isClientName reports whether name may appear in CLIENT LIST. The empty name removes the name.
func isClientName(name string) bool {
	outside := func(r rune) bool { return r < '!' || r > '~' }
	return len(name) <= 256 && !strings.ContainsFunc(name, outside)
}

func (c *conn) describe() string {
	return fmt.Sprintf("id=%d addr=%s laddr=%s name=%s db=0 user=%s resp=%d\n",
		c.id, c.net.RemoteAddr(), c.net.LocalAddr(), c.name, c.caller().Name(), c.version)
}

// redisVersion is the version of Redis that the server reports: the first with CLIENT SETINFO.
// Clients derive from it which commands they may send.
const redisVersion = "7.2.0"

// info answers INFO.
func (c *conn) info(args [][]byte) {
	up := time.Since(c.srv.began)
	c.addCommands()
	stats := c.srv.Stats()
	sections := []struct{ name, text string }{
		{"Server", fmt.Sprintf("redis_version:%s\r\nredis_mode:standalone\r\nserver_name:weir\r\nweir_version:%s\r\nos:%s\r\narch_bits:%d\r\nprocess_id:%d\r\nuptime_in_seconds:%d\r\nuptime_in_days:%d\r\n",
			redisVersion, c.srv.cfg.Version, runtime.GOOS, 32<<(^uint(0)>>63), os.Getpid(), up/time.Second, up/(24*time.Hour))},
		{"Clients", fmt.Sprintf("connected_clients:%d\r\n", stats.Conns)},
		{"Persistence", "loading:0\r\n"},
		{"Stats", fmt.Sprintf("total_commands_processed:%d\r\n", stats.Commands)},
		{"Replication", "role:master\r\nconnected_slaves:0\r\n"},
		{"Cluster", "cluster_enabled:0\r\n"},
		{"Keyspace", ""},
	}
	var b strings.Builder
	for _, s := range sections {
		if wanted(args[1:], s.name) {
			if b.Len() > 0 {
				b.WriteString("\r\n")
			}
			b.WriteString("# " + s.name + "\r\n" + s.text)
		}
	}
	c.out = c.version.AppendText(c.out, b.String())
}

// wanted reports whether a section was requested.
func wanted(names [][]byte, section string) bool {
	return len(names) == 0 || slices.ContainsFunc(names, func(n []byte) bool {
		return isWord(n, strings.ToUpper(section)) || isWord(n, "ALL") || isWord(n, "EVERYTHING") || isWord(n, "DEFAULT")
	})
}

// commandCommand answers COMMAND.
func (c *conn) commandCommand(args [][]byte) {
	if len(args) == 1 {
		c.commandInfo(nil)
		return
	}
	switch sub := args[1]; {
	case isWord(sub, "COUNT"):
		c.out = resp.AppendInt(c.out, int64(len(commands)))
	case isWord(sub, "INFO"):
		c.commandInfo(args[2:])
	case isWord(sub, "DOCS"):
		c.commandDocs(args[2:])
	case isWord(sub, "LIST"):
		c.out = resp.AppendArray(c.out, len(commands))
		for _, cmd := range commands {
			c.out = resp.AppendBulk(c.out, strings.ToLower(cmd.name))
		}
	default:
		c.fail("ERR unknown subcommand '" + clip(sub) + "'. Try COMMAND COUNT, DOCS, INFO or LIST.")
	}
}

// named returns the commands with these names, nil for unknown ones. Without names it returns all.
func named(names [][]byte) []*command {
	if len(names) == 0 {
		return commands
	}
	list := make([]*command, len(names))
	for i, n := range names {
		list[i] = find(n)
	}
	return list
}

// commandInfo replies with the properties that clients need to route a command.
func (c *conn) commandInfo(names [][]byte) {
	list := named(names)
	c.out = resp.AppendArray(c.out, len(list))
	for _, cmd := range list {
		if cmd == nil {
			c.out = c.version.AppendNull(c.out)
			continue
		}
		c.out = cmd.appendInfo(c.out, c.version)
	}
}

func (cmd *command) appendInfo(b []byte, v resp.Version) []byte {
	arity, step, flag := cmd.min, 0, "readonly"
	if cmd.max != cmd.min {
		arity = -cmd.min
	}
	if cmd.arity != 0 {
		arity = cmd.arity
	}
	if cmd.key > 0 {
		step = 1
	}
	if cmd.writes {
		flag = "write"
	}
	b = resp.AppendBulk(resp.AppendArray(b, 10), strings.ToLower(cmd.name))
	b = resp.AppendInt(b, int64(arity))
	b = resp.AppendSimple(resp.AppendSimple(v.AppendSet(b, 2), flag), "fast")
	b = resp.AppendInt(resp.AppendInt(b, int64(cmd.key)), int64(cmd.key))
	b = resp.AppendInt(b, int64(step))
	b = v.AppendSet(b, 0)         // categories
	b = resp.AppendArray(b, 0)    // tips
	b = resp.AppendArray(b, 0)    // key specifications
	return resp.AppendArray(b, 0) // subcommands
}

// commandDocs replies with the texts that redis-cli shows as hints. The arguments are one text.
func (c *conn) commandDocs(names [][]byte) {
	list := slices.DeleteFunc(slices.Clone(named(names)), func(cmd *command) bool { return cmd == nil })
	c.out = c.version.AppendMap(c.out, len(list))
	for _, cmd := range list {
		c.out = cmd.appendDocs(resp.AppendBulk(c.out, strings.ToLower(cmd.name)), c.version)
	}
}

func (cmd *command) appendDocs(b []byte, v resp.Version) []byte {
	fields := 3
	if cmd.usage != "" {
		fields++
	}
	b = resp.AppendBulk(resp.AppendBulk(v.AppendMap(b, fields), "summary"), cmd.summary)
	b = resp.AppendBulk(resp.AppendBulk(b, "since"), redisVersion)
	b = resp.AppendBulk(resp.AppendBulk(b, "group"), "module")
	if cmd.usage == "" {
		return b
	}
	b = v.AppendMap(resp.AppendArray(resp.AppendBulk(b, "arguments"), 1), 2)
	b = resp.AppendBulk(resp.AppendBulk(b, "name"), cmd.usage)
	return resp.AppendBulk(resp.AppendBulk(b, "type"), "string")
}
