package redistier

import (
	"context"
	"crypto/sha1" //nolint:gosec // it is how Redis names scripts
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlimit/weir"
)

//go:embed heartbeat.lua
var heartbeatText string

var heartbeatSHA = func() string {
	sum := sha1.Sum([]byte(heartbeatText)) //nolint:gosec // it is how Redis names scripts
	return hex.EncodeToString(sum[:])
}()

const (
	// leaveTimeout is how long Close waits for the server to forget the node.
	leaveTimeout = 300 * time.Millisecond

	// keepFactor is how many heartbeats the set of nodes outlives the last node's.
	keepFactor = 10
)

// silence returns after how long without a heartbeat a node is dead: three may be lost.
func silence(every time.Duration) time.Duration { return every * 7 / 2 }

// beat sends heartbeats until ctx ends.
func (b *Bus) beat(ctx context.Context) {
	tick := time.NewTicker(b.config.Every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-b.again:
		case <-ctx.Done():
			return
		}
		_ = b.heartbeat(ctx) // it is counted
	}
}

// heartbeat tells Redis that this node is alive, counts the nodes and reads Redis's
// clock. It is called by New, and then by beat only.
func (b *Bus) heartbeat(ctx context.Context) error {
	r := b.config.Redis
	ctx, cancel := context.WithTimeout(ctx, r.DialTimeout+r.Timeout) // it may have to connect
	defer cancel()
	nodes, at, err := b.ask(ctx, true)
	if isUnknownScript(err) {
		nodes, at, err = b.ask(ctx, false)
	}
	if err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) { // which is Close
			b.counts.failed.Add(1)
		}
		b.shaken.Store(true)
		return fmt.Errorf("redistier: heartbeat: %w", err)
	}
	if at.after.Sub(at.before) >= b.config.Every { // the other nodes' may have been held up, too
		b.shaken.Store(true)
	}
	b.clock.add(at)
	b.counted(nodes, time.Now())
	return nil
}

// counted notes a count. After trouble the server may not know yet who is alive, so that
// for two heartbeats the count only rises.
func (b *Bus) counted(nodes int64, now time.Time) {
	if b.shaken.Swap(false) {
		b.settled = now.Add(2 * b.config.Every)
	}
	if now.Before(b.settled) {
		nodes = max(nodes, b.nodes.Load())
	}
	b.nodes.Store(nodes)
}

// ask executes the script: by its name, or with its text.
func (b *Bus) ask(ctx context.Context, named bool) (nodes int64, at reading, err error) {
	at.before = b.config.Now()
	answer, err := b.conn.Client.Do(ctx, b.heartbeatCommand(named)).ToArray()
	at.after = b.config.Now()
	if err != nil {
		return 0, reading{}, err
	}
	nodes, at.time, err = parseHeartbeat(answer)
	return nodes, at, err
}

func (b *Bus) heartbeatCommand(named bool) rueidis.Completed {
	every := b.config.Every
	args := []string{
		b.member(),
		strconv.FormatInt(silence(every).Microseconds(), 10),
		strconv.FormatInt((keepFactor * every).Milliseconds(), 10),
	}
	if named {
		return b.conn.Client.B().Evalsha().Sha1(heartbeatSHA).Numkeys(1).Key(b.config.nodesKey()).Arg(args...).Build()
	}
	return b.conn.Client.B().Eval().Script(heartbeatText).Numkeys(1).Key(b.config.nodesKey()).Arg(args...).Build()
}

// parseHeartbeat reads how many nodes there are, and TIME: seconds and microseconds.
func parseHeartbeat(answer []rueidis.RedisMessage) (nodes int64, at weir.Instant, err error) {
	var numbers [3]int64
	if len(answer) != len(numbers) {
		return 0, 0, fmt.Errorf("the script has returned %d numbers, not %d", len(answer), len(numbers))
	}
	for i := range answer {
		if numbers[i], err = answer[i].AsInt64(); err != nil {
			return 0, 0, err
		}
	}
	return numbers[0], weir.Instant(numbers[1]*int64(time.Second) + numbers[2]*int64(time.Microsecond)), nil
}

// leave has Redis forget this node, if it can be reached.
func (b *Bus) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	_ = b.conn.Client.Do(ctx, b.conn.Client.B().Zrem().Key(b.config.nodesKey()).Member(b.member()).Build()).Error()
}

// member is the node's name in the set of nodes.
func (b *Bus) member() string { return hex.EncodeToString(b.id[:]) }

// isUnknownScript says whether the server did not know a script, and so did nothing.
func isUnknownScript(err error) bool {
	r, ok := rueidis.IsRedisErr(err)
	return ok && strings.HasPrefix(r.Error(), "NOSCRIPT")
}
