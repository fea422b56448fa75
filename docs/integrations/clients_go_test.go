package integrations

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// playGoRedis plays a session with go-redis.
func playGoRedis(t *testing.T, s *session) (got replies) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	client := redis.NewClient(&redis.Options{
		Addr: s.address(), Username: s.User, Password: s.Password, ClientName: s.Name, Protocol: s.Protocol, PoolSize: 1,
	})
	defer client.Close()
	var reserved any
	for _, command := range s.Commands {
		reply := plain(client.Do(ctx, arguments(command, reserved)...).Result())
		reserved = reservedBy(reply, reserved)
		got.Replies = append(got.Replies, reply)
	}
	pipeline := client.Pipeline()
	var sent []*redis.Cmd
	for _, command := range s.Pipeline {
		sent = append(sent, pipeline.Do(ctx, arguments(command, nil)...))
	}
	_, _ = pipeline.Exec(ctx) // each command has its own error
	var piped []any
	for _, cmd := range sent {
		piped = append(piped, plain(cmd.Result()))
	}
	got.Pipeline = piped
	news := client.Subscribe(ctx, "news")
	defer news.Close()
	_, err := news.Receive(ctx)
	got.Subscribe = plain("subscribed", err)
	return got
}

// playRueidis plays a session with rueidis.
func playRueidis(t *testing.T, s *session) (got replies) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	resp2 := s.Protocol == 2
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{s.address()}, Username: s.User, Password: s.Password, ClientName: s.Name, AlwaysRESP2: resp2, DisableCache: resp2,
	})
	if err != nil { // it connects at once
		for range s.Commands {
			got.Replies = append(got.Replies, failure(err.Error()))
		}
		return got
	}
	defer client.Close()
	ask := func(command []string, reserved any) rueidis.Completed {
		b := client.B().Arbitrary(command[0])
		for _, arg := range arguments(command[1:], reserved) {
			b = b.Args(arg.(string))
		}
		return b.Build()
	}
	var reserved any
	for _, command := range s.Commands {
		reply := plain(client.Do(ctx, ask(command, reserved)).ToAny())
		reserved = reservedBy(reply, reserved)
		got.Replies = append(got.Replies, reply)
	}
	var sent rueidis.Commands
	for _, command := range s.Pipeline {
		sent = append(sent, ask(command, nil))
	}
	var piped []any
	for _, r := range client.DoMulti(ctx, sent...) {
		piped = append(piped, plain(r.ToAny()))
	}
	got.Pipeline = piped
	err = client.Receive(ctx, client.B().Subscribe().Channel("news").Build(), func(rueidis.PubSubMessage) {})
	got.Subscribe = plain("subscribed", err)
	return got
}

// arguments returns a command with the id of a reservation where it says @.
func arguments(command []string, reserved any) (list []any) {
	for _, arg := range command {
		if arg == "@" {
			list = append(list, reserved)
			continue
		}
		list = append(list, arg)
	}
	return list
}

// reservedBy returns the id of the reservation that a reply tells of, else the one before.
func reservedBy(reply, before any) any {
	if fields, ok := reply.([]any); ok && len(fields) == 6 {
		return fields[0]
	}
	return before
}

// plain returns a reply as JSON has it.
func plain(reply any, err error) any {
	if err != nil {
		return failure(err.Error())
	}
	switch reply := reply.(type) {
	case int64:
		return float64(reply)
	case []any:
		var list []any
		for _, r := range reply {
			list = append(list, plain(r, nil))
		}
		return list
	}
	return reply
}
