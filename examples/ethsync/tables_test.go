package main

import (
	"strings"
	"testing"
	"time"
)

const wantTables = `
COMPUTE UNITS                                                               NOW  EARLIER
a block in per-block mode: blockNumber, getBlockByNumber, getLogs           90   101
a poll in batched mode: blockNumber, getLogs                                70   85
a matched transaction in both: getTransactionByHash, getTransactionReceipt  40   32

A MONTH OF 30 DAYS  BLOCK TIME  PER BLOCK  POLL EVERY 17s  SAVED  PER BLOCK, EARLIER  POLL, EARLIER  SAVED
Ethereum            12s         19.4M      10.7M           45.1%  21.8M               13.0M          40.6%
Base                2s          116.6M     10.7M           90.8%  130.9M              13.0M          90.1%
BNB                 450ms       518.4M     10.7M           97.9%  581.8M              13.0M          97.8%

NOW has the costs of Alchemy's page "Compute Unit Costs", EARLIER those of an earlier version of it.
Published tables that have 13M a month for batched mode are right at the earlier costs with a poll every 16.95s, which they do not state.
`

func TestTables(t *testing.T) {
	var out strings.Builder
	if err := tables(&out, 17*time.Second); err != nil || "\n"+out.String() != wantTables {
		t.Errorf("%v\n%s\nwant\n%s", err, out.String(), wantTables)
	}
}

// TestPerMonth: polls that find more blocks than a call may read need more calls, and polling more often than
// there are blocks costs more than it saves.
func TestPerMonth(t *testing.T) {
	bnb := chain{450 * time.Millisecond}
	for _, tt := range []struct {
		chain
		poll          time.Duration
		each, batched int64
	}{
		{bnb, 900 * time.Second, 518_400_000, 2880 * 70},              // 2,000 blocks, one call
		{bnb, 901 * time.Second, 518_400_000, 2880 * 130 * 900 / 901}, // 2,002 blocks
		{bnb, time.Hour, 518_400_000, 720 * 250},                      // 8,000 blocks, four calls
		{chain{12 * time.Second}, 6 * time.Second, 19_440_000, 432_000 * 70},
	} {
		if each, batched := tt.perMonth(billed, tt.poll); each != tt.each || batched != tt.batched {
			t.Errorf("poll every %v: %d and %d, want %d and %d", tt.poll, each, batched, tt.each, tt.batched)
		}
	}
}
