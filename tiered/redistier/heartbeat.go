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
	// leaveTimeout is how long Close waits for the server to remove the node.
	leaveTimeout = 300 * time.Millisecond

	// keepFactor is after how many intervals without a heartbeat the set of nodes expires.
	keepFactor = 10
)

// silence returns how long a node may go without a heartbeat and still counts as alive:
// three may be lost.
func silence(every time.Duration) time.Duration { return every * 7 / 2 }

// beat sends heartbeats until ctx ends.
func (b *Bus) beat(ctx context.Context) {
	tick := time.NewTicker(b.config.Every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-b.beatNow:
		case <-ctx.Done():
			return
		}
		_ = b.heartbeat(ctx) // Stats counts the error
	}
}

// heartbeat records in Redis that this node is alive, counts the nodes and reads Redis's
// clock. It is called by New, and then by beat only.
func (b *Bus) heartbeat(ctx context.Context) error {
	r := b.config.Redis
	ctx, cancel := context.WithTimeout(ctx, r.DialTimeout+r.Timeout) // it may have to connect
	defer cancel()
	nodes, at, err := b.runScript(ctx, true)
	if isUnknownScript(err) {
		nodes, at, err = b.runScript(ctx, false)
	}
	if err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) { // canceled by Close
			b.counts.failed.Add(1)
		}
		b.uncertain.Store(true)
		return fmt.Errorf("redistier: heartbeat: %w", err)
	}
	if at.after.Sub(at.before) >= b.config.Every { // the heartbeats of other nodes may have been delayed, too
		b.uncertain.Store(true)
	}
	b.clock.add(at)
	b.counted(nodes, time.Now())
	return nil
}

// counted stores a node count. After a failure the server may not have received every node's
// heartbeat yet, so for two intervals the count may only rise.
func (b *Bus) counted(nodes int64, now time.Time) {
	if b.uncertain.Swap(false) {
		b.risingUntil = now.Add(2 * b.config.Every)
	}
	if now.Before(b.risingUntil) {
		nodes = max(nodes, b.nodes.Load())
	}
	b.nodes.Store(nodes)
}

// runScript runs the heartbeat script: by its hash if named, otherwise by its text.
func (b *Bus) runScript(ctx context.Context, named bool) (nodes int64, at reading, err error) {
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

// parseHeartbeat parses the number of nodes, and TIME: seconds and microseconds.
func parseHeartbeat(answer []rueidis.RedisMessage) (nodes int64, at weir.Instant, err error) {
	var numbers [3]int64
	if len(answer) != len(numbers) {
		return 0, 0, fmt.Errorf("the heartbeat script returned %d numbers, want %d", len(answer), len(numbers))
	}
	for i := range answer {
		if numbers[i], err = answer[i].AsInt64(); err != nil {
			return 0, 0, err
		}
	}
	return numbers[0], weir.Instant(numbers[1]*int64(time.Second) + numbers[2]*int64(time.Microsecond)), nil
}

// leave removes this node from the set of nodes, if Redis can be reached.
func (b *Bus) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	_ = b.conn.Client.Do(ctx, b.conn.Client.B().Zrem().Key(b.config.nodesKey()).Member(b.member()).Build()).Error()
}

// member is the node's name in the set of nodes.
func (b *Bus) member() string { return hex.EncodeToString(b.id[:]) }

// isUnknownScript reports whether the server did not run a script because it is not cached.
func isUnknownScript(err error) bool {
	r, ok := rueidis.IsRedisErr(err)
	return ok && strings.HasPrefix(r.Error(), "NOSCRIPT")
}
