package redisbacked

import (
	"context"
	"strconv"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/weirlimit/weir/bench/internal/harness"
)

// gcra is GCRA and nothing else: it says yes or no, and neither what remains nor when
// to come back. KEYS[1] is when the key's units will all be back, in µs; ARGV are the
// period and the whole burst, in µs.
const gcra = `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local tat = math.max(now, tonumber(redis.call('GET', KEYS[1]) or 0)) + ARGV[1]
if tat - now > tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[1], string.format('%.0f', tat), 'PX', math.ceil((tat - now) / 1000))
return 1`

// evalFloor is a script per decision, as cheap as can be.
func evalFloor() library {
	return library{name: "rueidis EVALSHA", kind: harness.Floor, open: openFloor}
}

func openFloor(addr string, settings []setting) (limiter, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, DisableRetry: true})
	if err != nil {
		return limiter{}, err
	}
	sha, err := client.Do(context.Background(), client.B().ScriptLoad().Script(gcra).Build()).ToString()
	if err != nil {
		client.Close()
		return limiter{}, err
	}
	var args [][]string
	for _, s := range settings {
		every := s.every.Microseconds()
		args = append(args, []string{strconv.FormatInt(every, 10), strconv.FormatInt(every*s.burst, 10)})
	}
	var sent atomic.Int64
	return limiter{
		take: func(ctx context.Context, which int, key string) (bool, error) {
			sent.Add(1)
			cmd := client.B().Evalsha().Sha1(sha).Numkeys(1).Key("floor:" + key).Arg(args[which]...).Build()
			n, err := client.Do(ctx, cmd).AsInt64()
			return n == 1, err
		},
		commands: sent.Load,
		close:    client.Close,
	}, nil
}
