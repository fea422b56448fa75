// Package overrides stores the overrides that operators set, for all daemons that share the
// counters.
//
// In Redis they are the fields of one hash: a policy's name, a zero byte and a key, with the
// override as JSON. One more field is a version that changes with every write; daemons poll it
// every two seconds. The hash expires a minute after its last override, unless it has fields of a
// later version of weir, whose expiry is unknown. Every minute daemons remove overrides that have
// ended and correct the expiry, which a new override can only put off.
package overrides

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redisconn"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server"
)

// Redis keeps overrides in Redis. Make one with NewRedis.
type Redis struct {
	conn *redisconn.Conn
	key  string
}

var _ server.Overrides = (*Redis)(nil)

// How often a daemon polls the version, how often it reads everything even if the version has not
// changed, and how often it tidies up.
const (
	lookEvery   = 2 * time.Second
	lookAtAll   = 5  // of these
	tidyAt      = 30 // of these
	callTimeout = 2 * time.Second
)

// version is the field that changes. No other has its form: they have a zero byte.
const version = "version"

// NewRedis connects. Prefix is that of all keys.
func NewRedis(ctx context.Context, c redisconn.Config, prefix string) (*Redis, error) {
	c.Conns = 1 // every two seconds is not much
	conn, err := redisconn.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	return &Redis{conn: conn, key: prefix + ":overrides"}, nil
}

// Close ends the connection.
func (r *Redis) Close() { r.conn.Close() }

// Put keeps an override. It does not read the others: the time to set many would be quadratic.
func (r *Redis) Put(ctx context.Context, o server.Override) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	text, err := encode(o)
	if err != nil {
		return err
	}
	args := []string{field(o.Policy, o.Key), text, rand.Text(), endOf(o.Until)}
	if err := putScript.Exec(ctx, r.conn.Client, []string{r.key}, args).Error(); err != nil {
		return fmt.Errorf("overrides: %w", err)
	}
	return nil
}

// putScript sets an override and the version. The hash ends no earlier than the override.
//
//	KEYS  the hash
//	ARGV  the field, its value, the version, and when the hash may end as endOf has it
var putScript = rueidis.NewLuaScript(`
local ttl = redis.call('PTTL', KEYS[1])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2], 'version', ARGV[3])
if ARGV[4] == '0' then
	redis.call('PERSIST', KEYS[1])
elseif ttl == -2 or ttl >= 0 and redis.call('TIME')[1] + ttl / 1000 < tonumber(ARGV[4]) then
	redis.call('EXPIREAT', KEYS[1], ARGV[4])
end
return 1
`)

// endOf returns when a hash may end whose last override ends at a time, in Unix seconds: a minute
// later, or 0 for never.
func endOf(until time.Time) string {
	if until.IsZero() {
		return "0"
	}
	return strconv.FormatInt(until.Unix()+60, 10)
}

// tidy removes overrides that have ended, and sets the expiry of the hash to that of the last
// one. If the hash changes meanwhile, tidy starts again: an override may have been renewed, or
// added.
func (r *Redis) tidy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for {
		seen, err := r.read(ctx)
		if err != nil {
			return err
		}
		if done, err := r.tidyUp(ctx, seen, time.Now()); done || err != nil {
			return err
		}
	}
}

// tidyScript removes fields and sets the end of the hash, unless another version is there
// than the one that was seen.
//
//	KEYS  the hash
//	ARGV  the version, when the hash ends as endOf has it, the fields
var tidyScript = rueidis.NewLuaScript(`
if (redis.call('HGET', KEYS[1], 'version') or '') ~= ARGV[1] then return 0 end
for i = 3, #ARGV do redis.call('HDEL', KEYS[1], ARGV[i]) end
if ARGV[2] == '0' then
	redis.call('PERSIST', KEYS[1])
else
	redis.call('EXPIREAT', KEYS[1], ARGV[2])
end
return 1
`)

// tidyUp says whether what was seen was still there to be tidied up.
func (r *Redis) tidyUp(ctx context.Context, seen contents, now time.Time) (bool, error) {
	var ended []string
	last, forever := now, seen.strange
	for name, o := range seen.overrides {
		switch {
		case o.Until.IsZero():
			forever = true
		case !now.Before(o.Until):
			ended = append(ended, name)
		case o.Until.After(last):
			last = o.Until
		}
	}
	if forever {
		last = time.Time{}
	}
	done, err := tidyScript.Exec(ctx, r.conn.Client, []string{r.key}, append([]string{seen.version, endOf(last)}, ended...)).AsBool()
	if err != nil {
		return false, fmt.Errorf("overrides: %w", err)
	}
	return done, nil
}

// Remove forgets an override.
func (r *Redis) Remove(ctx context.Context, policy, key string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c := r.conn.Client
	n, err := c.Do(ctx, c.B().Hdel().Key(r.key).Field(field(policy, key)).Build()).AsInt64()
	if err != nil {
		return false, fmt.Errorf("overrides: %w", err)
	}
	if n == 0 {
		return false, nil
	}
	changed := c.B().Hset().Key(r.key).FieldValue().FieldValue(version, rand.Text()).Build()
	if err := c.Do(ctx, changed).Error(); err != nil {
		return true, fmt.Errorf("overrides: %w", err)
	}
	return true, nil
}

// List returns those that have not ended.
func (r *Redis) List(ctx context.Context) ([]server.Override, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	seen, err := r.read(ctx)
	if err != nil {
		return nil, err
	}
	var list []server.Override
	now := time.Now()
	for _, o := range seen.overrides {
		if o.Until.IsZero() || now.Before(o.Until) {
			list = append(list, o)
		}
	}
	return list, nil
}

// contents is what is in the hash.
type contents struct {
	version   string
	overrides map[string]server.Override // by field
	strange   bool                       // there are others, which a later version wrote
}

// read returns what is in the hash.
func (r *Redis) read(ctx context.Context) (contents, error) {
	c := r.conn.Client
	fields, err := c.Do(ctx, c.B().Hgetall().Key(r.key).Build()).AsStrMap()
	if err != nil {
		return contents{}, fmt.Errorf("overrides: %w", err)
	}
	out := contents{version: fields[version], overrides: make(map[string]server.Override, len(fields))}
	for name, text := range fields {
		policy, key, ok := strings.Cut(name, "\x00")
		if !ok {
			continue
		}
		if o, err := decode(policy, key, text); err == nil {
			out.overrides[name] = o
		} else {
			out.strange = true
		}
	}
	return out, nil
}

// Watch calls changed at once, when the overrides were changed, and every ten seconds. It tidies up at
// once and every minute.
func (r *Redis) Watch(ctx context.Context, changed func()) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	known := r.look(ctx, "")
	changed() // changes before the first poll are not detected otherwise
	for n := 1; ; n++ {
		if n%tidyAt == 1 {
			_ = r.tidy(ctx) // it is done again, and nothing depends on it
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := r.look(ctx, known)
		if now != known || n%lookAtAll == 0 {
			known = now
			changed()
		}
	}
}

// look returns the version, or the last known one if Redis is unavailable.
func (r *Redis) look(ctx context.Context, known string) string {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c := r.conn.Client
	now, err := c.Do(ctx, c.B().Hget().Key(r.key).Field(version).Build()).ToString()
	switch {
	case errors.Is(err, rueidis.Nil):
		return ""
	case err != nil:
		return known
	}
	return now
}

func field(policy, key string) string { return policy + "\x00" + key }

// stored is an override as it is kept.
type stored struct {
	Until  *time.Time    `json:"until,omitempty"`
	Limits []storedLimit `json:"limits"`
}

type storedLimit struct {
	Name      string         `json:"name,omitempty"`
	Rate      int64          `json:"rate"`
	Per       *weir.Period   `json:"per,omitempty"` // slots have none
	Burst     int64          `json:"burst,omitempty"`
	Algorithm weir.Algorithm `json:"algorithm"`
	Initial   weir.Fill      `json:"initial"`
	MaxDebt   int64          `json:"max_debt,omitempty"`
	OnError   weir.OnError   `json:"on_error"`
	Classes   weir.Classes   `json:"classes,omitzero"`
	Pace      string         `json:"pace,omitempty"`
}

func encode(o server.Override) (string, error) {
	var s stored
	if !o.Until.IsZero() {
		s.Until = &o.Until
	}
	for _, l := range o.Limits {
		x := storedLimit{
			Name: l.Name, Rate: l.Rate, Burst: l.Burst, Algorithm: l.Algorithm, Initial: l.Initial, MaxDebt: l.MaxDebt, OnError: l.OnError,
			Classes: l.Classes, Pace: l.Pace,
		}
		if l.Per != (weir.Period{}) {
			x.Per = &l.Per
		}
		s.Limits = append(s.Limits, x)
	}
	text, err := json.Marshal(s)
	return string(text), err
}

func decode(policy, key, text string) (server.Override, error) {
	var s stored
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return server.Override{}, err
	}
	o := server.Override{Policy: policy, Override: ruleset.Override{Key: key}}
	if s.Until != nil {
		o.Until = *s.Until
	}
	for _, x := range s.Limits {
		l := ruleset.Limit{Limit: weir.Limit{
			Name: x.Name, Rate: x.Rate, Burst: x.Burst, Algorithm: x.Algorithm, Initial: x.Initial, MaxDebt: x.MaxDebt, OnError: x.OnError,
			Classes: x.Classes, Pace: x.Pace,
		}}
		if x.Per != nil {
			l.Per = *x.Per
		}
		o.Limits = append(o.Limits, l)
	}
	return o, nil
}
