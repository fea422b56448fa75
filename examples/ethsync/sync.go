package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"time"
)

// syncer is the real-time worker. In per-block mode it reads each block for itself, in batched mode it
// reads the logs of all blocks since the last poll at once.
type syncer struct {
	client  caller
	delays  func() int64 // counts calls that were refused or had to wait
	batched bool
	back    int64 // how many blocks before the head to begin
	next    int64 // the first block that is not processed; 0 at first

	polls    int64
	blocks   int64 // processed
	matches  int64 // transactions in them that match
	caughtUp bool  // the head has been reached; the following is counted from then on
	behind   int64 // the most blocks that a poll found besides the newest
	delayed  int64 // blocks during whose calls delays increased
}

// run polls until ctx ends.
func (s *syncer) run(ctx context.Context, every time.Duration) error {
	slog.Info("rate limiting is enabled, with a guaranteed share of the budget", "chain", "ethereum", "class", "realtime")
	for tick := time.Tick(every); ; {
		if err := s.poll(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick:
		}
	}
}

// poll processes all new blocks.
func (s *syncer) poll(ctx context.Context) error {
	before := s.delays()
	var text string
	if err := s.read(ctx, &text, blockNumber); err != nil {
		return err
	}
	head, err := strconv.ParseInt(text, 0, 64)
	if err != nil {
		return fmt.Errorf("%s: %w", blockNumber, err)
	}
	s.found(head)
	step := int64(1)
	if s.batched {
		step = maxRange
	}
	for s.next <= head {
		to := min(s.next+step-1, head)
		if err := s.process(ctx, s.next, to); err != nil {
			return err
		}
		s.blocks += to - s.next + 1
		if s.caughtUp && s.delays() > before {
			s.delayed += to - s.next + 1
		}
		s.next, before = to+1, s.delays()
	}
	s.polls++
	return nil
}

// found notes the newest block that a poll has found. In batched mode the first poll catches up.
func (s *syncer) found(newest int64) {
	first := s.next == 0
	if first {
		s.next = max(1, newest-s.back)
	}
	s.caughtUp = s.caughtUp || newest <= s.next || s.batched && !first
	if s.caughtUp {
		s.behind = max(s.behind, newest-s.next)
	}
}

// process reads the logs of a range, and the transactions that match.
func (s *syncer) process(ctx context.Context, from, to int64) error {
	if !s.batched {
		if err := s.read(ctx, nil, getBlock, quantity(from), false); err != nil {
			return err
		}
	}
	var logs []struct{ TransactionHash string }
	if err := s.read(ctx, &logs, getLogs, filter(from, to)); err != nil {
		return err
	}
	s.matches += int64(len(logs))
	for _, log := range logs {
		if err := s.read(ctx, nil, getTransaction, log.TransactionHash); err != nil {
			return err
		}
		if err := s.read(ctx, nil, getReceipt, log.TransactionHash); err != nil {
			return err
		}
	}
	return nil
}

// read calls a method and decodes the result into v, unless that is nil.
func (s *syncer) read(ctx context.Context, v any, method string, params ...any) error {
	raw, err := s.client.call(ctx, method, params)
	if err != nil || v == nil {
		return err
	}
	return json.Unmarshal(raw, v)
}

func quantity(n int64) string { return "0x" + strconv.FormatInt(n, 16) }

func filter(from, to int64) map[string]string {
	return map[string]string{"fromBlock": quantity(from), "toBlock": quantity(to)}
}
