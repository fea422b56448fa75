package main

import (
	"strings"
	"testing"
)

const wantReport = `
WORKER    CALLS  REFUSED  WAITED  LONGEST WAIT  CU     DONE
sync      456    1        35      148 ms        13080  133 blocks, at most 1 behind the newest, 23 delayed; 90.2 CU per block and 40 per match (27)
sync      39     0        2       57 ms         970    57 blocks, at most 6 behind the newest, 13 delayed; 70.0 CU per poll and 40 per match (12)
backfill  166    2        160     2085 ms       16200  52 ranges of 2000 blocks; 3 pauses

PROVIDER         CU
admitted         29340  97.9% of 500 per second
most in 10 s     4990   of 5000
eth_blockNumber  1340
eth_getLogs      11400

`

func TestReport(t *testing.T) {
	var out strings.Builder
	report(&out, []summary{
		{Worker: "sync", Calls: 456, Refused: 1, Waited: 35, LongestMS: 148, Units: 13_080, Polls: 134, Blocks: 133, Matches: 27, Behind: 1, Delayed: 23},
		{Worker: "sync", Calls: 39, Waited: 2, LongestMS: 57, Units: 970, Batched: true, Polls: 7, Blocks: 57, Matches: 12, Behind: 6, Delayed: 13},
		{Worker: "backfill", Calls: 166, Refused: 2, Waited: 160, LongestMS: 2085, Units: 16_200, Ranges: 52, Pauses: 3},
	}, stats{Granted: 29_340, Peak: 4990, Refused: 3, Units: map[string]int64{getLogs: 11_400, blockNumber: 1340}, ElapsedMS: 59_940})
	if got := "\n" + out.String(); strings.TrimLeft(got, "\n") != strings.TrimLeft(wantReport, "\n") {
		t.Errorf("%s\nwant\n%s", got, wantReport)
	}
}

// TestAnnounce: the first line says what is about to happen, with the flags and variables that are set.
func TestAnnounce(t *testing.T) {
	for _, tt := range []struct{ flags, variable, want string }{
		{"", "", "For 30s: a provider with 500 units per second, a sync worker (urgent, 60 %) and a backfill worker (40 %), over Redis at 127.0.0.1:6379. Expected: no call is refused.\n"},
		{"-for 5s -redis off", "", "For 5s: a provider with 500 units per second, a sync worker (urgent, 60 %) and a backfill worker (40 %), without Redis, so that each has a budget of its own. Expected: the provider refuses calls.\n"},
		{"-jitter 101ms", "", "Expected: the provider refuses calls.\n"},
		{"", "ALCHEMY_CU_PER_SECOND=500", "(urgent, 291 units per second) and a backfill worker (194 units per second), over Redis at 127.0.0.1:6379. Expected: no call is refused.\n"},
		{"", "ALCHEMY_CU_PER_SECOND=600", "Expected: the provider refuses calls.\n"},
	} {
		o, err := readFlags("demo", strings.Fields(tt.flags))
		if err != nil {
			t.Fatal(err)
		}
		c, err := o.accountConfig([]string{tt.variable})
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if o.announce(&out, &c); !strings.HasSuffix(out.String(), tt.want) {
			t.Errorf("%s %s: %s, want %s", tt.flags, tt.variable, &out, tt.want)
		}
	}
}

// TestVerdict: the last line says whether calls were refused.
func TestVerdict(t *testing.T) {
	for want, s := range map[string]stats{
		"\nOK: no call was refused.\n":                {Granted: 5},
		"\nThe provider refused calls with 429: 3.\n": {Granted: 5, Refused: 3},
		"\nThe provider got no calls.\n":              {},
	} {
		var out strings.Builder
		if s.verdict(&out); out.String() != want {
			t.Errorf("%+v: %q, want %q", s, &out, want)
		}
	}
}

// TestFlags: what is wrong is refused before anything starts.
func TestFlags(t *testing.T) {
	for _, bad := range []string{"x", "-for 0s", "-block-time -1s", "-poll 0s", "-parallel 0", "-jitter -1ms", "-behind -1"} {
		if _, err := readFlags("sync", strings.Fields(bad)); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
	if o, err := readFlags("sync", strings.Fields("-redis off -lend=false -behind 0")); err != nil || o.redis != "off" || o.lend || o.behind != 0 {
		t.Errorf("%+v, %v", o, err)
	}
}
