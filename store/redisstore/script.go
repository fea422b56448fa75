package redisstore

import (
	"context"
	"crypto/sha1" //nolint:gosec // it is how Redis names scripts
	_ "embed"
	"encoding/hex"
	"strings"

	"github.com/redis/rueidis"
)

//go:embed take.lua
var takeText string

//go:embed small.lua
var smallText string

//go:embed do.lua
var doText string

//go:embed set.lua
var setText string

//go:embed restore.lua
var restoreText string

//go:embed epoch.lua
var epochText string

var (
	takeScript    = newScript(takeText)
	smallScript   = newScript(smallText)
	doScript      = newScript(doText)
	setScript     = newScript(setText)
	restoreScript = newScript(restoreText)
	epochScript   = newScript(epochText)
)

// A script is called by the hash of its text; the text is sent only to a server that does
// not have it.
type script struct{ text, sha string }

func newScript(text string) *script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // it is how Redis names scripts
	return &script{text, hex.EncodeToString(sum[:])}
}

// command returns a call of the script: if named by hash, else with its text.
func (c *script) command(b rueidis.Builder, named bool, keys, args []string) rueidis.Completed {
	if named {
		return b.Evalsha().Sha1(c.sha).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
	}
	return b.Eval().Script(c.text).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

// unknownScript says whether the server does not have a script, and so executed nothing.
func unknownScript(err error) bool {
	r, ok := rueidis.IsRedisErr(err)
	return ok && strings.HasPrefix(r.Error(), "NOSCRIPT")
}

// eval calls a script outside the send queues. Decisions never use it.
func (s *Store) eval(ctx context.Context, c *script, keys, args []string) rueidis.RedisResult {
	r := s.ask(ctx, c.command(s.client.B(), true, keys, args))
	if unknownScript(r.Error()) {
		r = s.ask(ctx, c.command(s.client.B(), false, keys, args))
	}
	return r
}

func (s *Store) ask(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	s.counts.commands.Add(1)
	return s.client.Do(ctx, cmd)
}
