package algo

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// The vectors in testdata/vectors are what the models answer, at instants of
// whole microseconds. They are shared: an implementation in another language
// reads the same files. go test -update writes them.

// vectorFile holds the vectors of one algorithm.
type vectorFile struct {
	Algorithm string        `json:"algorithm"`
	Cases     []*vectorCase `json:"cases"`
}

// vectorCase is one key under one rule.
type vectorCase struct {
	Rate      int64        `json:"rate"`
	PerNs     int64        `json:"per_ns,omitempty"`
	Burst     int64        `json:"burst,omitempty"`      // gcra
	PerMinute int64        `json:"per_minute,omitempty"` // dual; rate is per second there
	Steps     []vectorStep `json:"steps"`
}

// vectorStep is a charge, or with op "peek" a question, and the answer.
type vectorStep struct {
	NowNs     int64  `json:"now_ns"` // Unix time
	Op        string `json:"op"`
	Cost      int64  `json:"cost"`
	Allowed   bool   `json:"allowed"`
	Remaining int64  `json:"remaining"` // after the charge
	RetryNs   int64  `json:"retry_ns"`  // from now; 0 if allowed, -1 if never
	ResetNs   int64  `json:"reset_ns"`  // from now
}

var vectorSpecs = map[string][]ruleSpec{
	"gcra": {
		gcraSpec(10, second, 5), gcraSpec(3, second, 3), gcraSpec(7, minute, 2), gcraSpec(1, 100*second, 1),
		gcraSpec(999_983, second, 10), gcraSpec(3, year, 3), gcraSpec(1_000_000_000, 30*day, 1_000),
	},
	"fixed":    {fixedSpec(5, second), fixedSpec(100, minute), fixedSpec(1, 7*second)},
	"anchored": {{kind: kindAnchored, rate: 3, per: 10 * second}, {kind: kindAnchored, rate: 1, per: second}},
	"sliding":  {slidingSpec(10, minute), slidingSpec(1, second), slidingSpec(7, 3*second)},
	"log":      {{kind: kindLog, rate: 3, per: 10 * second}, {kind: kindLog, rate: 5, per: second}},
}

var dualVectors = [][2]int64{{5, 40}, {50, 0}, {0, 20}, {3, 3}}

func TestVectors(t *testing.T) {
	for name, specs := range vectorSpecs {
		t.Run(name, func(t *testing.T) {
			want := &vectorFile{Algorithm: name}
			for i, s := range specs {
				want.Cases = append(want.Cases, modelVectors(s, uint64(i)))
			}
			for i, c := range sharedVectors(t, want) {
				b := newBare(t, specs[i])
				c.check(t, b.take, b.remaining, b.retryAt, b.resetAt)
			}
		})
	}
	t.Run("dual", func(t *testing.T) {
		want := &vectorFile{Algorithm: "dual"}
		for i, d := range dualVectors {
			want.Cases = append(want.Cases, dualModelVectors(d[0], d[1], uint64(i)))
		}
		for i, c := range sharedVectors(t, want) {
			d, err := NewDual(dualVectors[i][0], dualVectors[i][1], 0)
			if err != nil {
				t.Fatal(err)
			}
			word := uint64(0)
			c.check(t,
				func(now, cost int64) (ok bool) { word, ok = d.Take(word, now, cost); return ok },
				func(now int64) int64 { return d.Remaining(word, now) },
				func(now, cost int64) int64 { return d.RetryAt(word, now, cost) },
				func(now int64) int64 { return d.ResetAt(word, now) })
		}
	})
}

// sharedVectors returns the cases of the file, which must be what the models say.
func sharedVectors(t *testing.T, want *vectorFile) []*vectorCase {
	t.Helper()
	path := filepath.Join("testdata", "vectors", want.Algorithm+".json")
	text := want.encode(t)
	if *update {
		if err := os.WriteFile(path, text, 0o644); err != nil { //nolint:gosec // meant to be read
			t.Fatal(err)
		}
	}
	stored, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(stored, text) {
		t.Errorf("%s is not what the models say; go test -update writes it", path)
	}
	var file vectorFile
	if err := json.Unmarshal(stored, &file); err != nil {
		t.Fatal(err)
	}
	return file.Cases
}

// encode writes a step a line.
func (f *vectorFile) encode(t *testing.T) []byte {
	t.Helper()
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte(`{"now_ns"`), []byte("\n{\"now_ns\""))
	text = bytes.ReplaceAll(text, []byte(`{"rate"`), []byte("\n{\"rate\""))
	return append(text, '\n')
}

// check plays a case.
func (c *vectorCase) check(t *testing.T, take func(now, cost int64) bool, remaining func(int64) int64,
	retryAt func(now, cost int64) int64, resetAt func(int64) int64,
) {
	t.Helper()
	for i, s := range c.Steps {
		got := s
		got.RetryNs = after(retryAt(s.NowNs, s.Cost), s.NowNs)
		if s.Op == "take" {
			got.Allowed = take(s.NowNs, s.Cost)
		} else {
			got.Allowed = got.RetryNs == 0
		}
		got.Remaining, got.ResetNs = remaining(s.NowNs), after(resetAt(s.NowNs), s.NowNs)
		if got != s {
			t.Fatalf("%d per %d ns, step %d: %+v, want %+v", c.Rate, c.PerNs, i, got, s)
		}
	}
}

func after(at, now int64) int64 {
	if at == Never {
		return -1
	}
	return at - now
}

// modelVectors lets a model answer random charges.
func modelVectors(s ruleSpec, seed uint64) *vectorCase {
	c := &vectorCase{Rate: s.rate, PerNs: s.per, Burst: s.burst}
	c.fill(s.length(), seed, []ruleModel{s.model()})
	return c
}

func dualModelVectors(perSecond, perMinute int64, seed uint64) *vectorCase {
	c := &vectorCase{Rate: perSecond, PerMinute: perMinute}
	var models []ruleModel
	if perSecond > 0 {
		models = append(models, fixedSpec(perSecond, second).model())
	}
	if perMinute > 0 {
		models = append(models, fixedSpec(perMinute, minute).model())
	}
	c.fill(second, seed, models)
	return c
}

// fill makes the steps: all models must admit, as in a ledger without holds.
func (c *vectorCase) fill(length int64, seed uint64, models []ruleModel) {
	src := &randSource{rand.New(rand.NewPCG(seed, 20260304)), 30} //nolint:gosec // the same every time
	now := start
	capacity := int64(Never)
	for _, m := range models {
		capacity = min(capacity, m.capacity())
	}
	fits := func(at, cost int64) bool {
		return !slices.ContainsFunc(models, func(m ruleModel) bool { return !admits(m, at, cost, nil) })
	}
	for src.more() {
		now += max(0, drawStep(src, length))
		now += 999 - (now+999)%1_000 // whole microseconds
		cost := drawCost(src, capacity)
		retry := firstInstant(now, func(at int64) bool { return fits(at, cost) })
		if retry > now && retry != Never && oneIn(src, 2) {
			c.Steps = append(c.Steps, answer(models, now, cost, "take", retry))
			now = (retry + 999) / 1_000 * 1_000 // as soon as a whole microsecond allows
			retry = firstInstant(now, func(at int64) bool { return fits(at, cost) })
		}
		op := "take"
		if oneIn(src, 6) {
			op = "peek"
		}
		if op == "take" && retry == now && cost > 0 {
			for _, m := range models {
				m.charge(now, cost, nil)
			}
		}
		c.Steps = append(c.Steps, answer(models, now, cost, op, retry))
	}
}

func answer(models []ruleModel, now, cost int64, op string, retry int64) vectorStep {
	s := vectorStep{NowNs: now, Op: op, Cost: cost, Allowed: retry == now, Remaining: Never, RetryNs: after(retry, now)}
	for _, m := range models {
		s.Remaining = min(s.Remaining, m.room(now, nil))
		reset := firstInstant(now, func(at int64) bool { return m.unused(at, nil) })
		s.ResetNs = max(s.ResetNs, reset-now)
	}
	return s
}
