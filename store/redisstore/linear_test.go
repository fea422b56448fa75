package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

// One key is linearizable: whatever many goroutines ask at once, over one store that
// combines their calls or over two, are as if they were made one after the other.
func TestLinearizable(t *testing.T) {
	redis := redistest.Start(t)
	for _, algorithm := range []weir.Algorithm{weir.FixedWindow, weir.GCRA} {
		for stores := 1; stores <= 2; stores++ {
			t.Run(fmt.Sprintf("%v over %d stores", algorithm, stores), func(t *testing.T) {
				for range short(3, 100) {
					seed := rand.Uint64()
					history := record(t, redis, seed, algorithm, stores)
					if !porcupine.CheckOperations(counter(capacity), history) {
						t.Fatalf("seed %d: %d calls in parallel gave answers that no order of them gives:\n%s", seed, len(history), historyText(history))
					}
				}
			})
		}
	}
}

// The checker finds a wrong answer in a long history, and a wrong idea of how the store
// counts.
func TestLinearizableCanFail(t *testing.T) {
	history := record(t, redistest.Start(t), rand.Uint64(), weir.GCRA, 1)
	if porcupine.CheckOperations(counter(capacity+1), history) {
		t.Errorf("a history of %d units passes for one of %d:\n%s", capacity, capacity+1, historyText(history))
	}
	for _, end := range []struct {
		what   string
		answer output
		right  bool
	}{
		{"what is left", output{true, capacity - 2}, true},
		{"a unit that somebody else got, too", output{true, capacity - 1}, false},
		{"a unit less than is left", output{true, capacity - 3}, false},
		{"a refusal of what fits", output{false, capacity - 1}, false},
	} {
		longer := slices.Clone(history)
		longer = append(longer, then(longer, input{op: weir.ResetEach}, output{}))
		longer = append(longer, then(longer, input{weir.TakeEach, 1}, output{true, capacity - 1}))
		longer = append(longer, then(longer, input{weir.TakeEach, 1}, end.answer))
		if got := porcupine.CheckOperations(counter(capacity), longer); got != end.right {
			t.Errorf("a history that ends with %s: the checker says %t, want %t:\n%s", end.what, got, end.right, historyText(longer))
		}
	}
}

// then returns a call behind all of a history.
func then(history []porcupine.Operation, in input, out output) porcupine.Operation {
	var last int64
	for _, o := range history {
		last = max(last, o.Return)
	}
	return porcupine.Operation{Input: in, Call: last + 1, Output: out, Return: last + 2}
}

// capacity is that of the limit in all histories. Time stands still, so only resets
// give anything back.
const capacity = 40

type input struct {
	op   weir.Op
	cost int64
}

type output struct {
	allowed   bool
	remaining int64
}

// counter is the sequential model: so many units, and a reset gives all of them.
func counter(units int64) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return units },
		Step: func(state, in, out any) (bool, any) {
			left, i, o := state.(int64), in.(input), out.(output)
			switch {
			case i.op == weir.ResetEach:
				return true, units
			case i.cost > left:
				return o == output{false, left}, left
			case i.op == weir.TakeEach:
				left -= i.cost
			}
			return o == output{true, left}, left
		},
	}
}

// record lets goroutines ask for one key as fast as they can, and returns what they
// called and got, and when.
func record(t *testing.T, redis *redistest.Server, seed uint64, algorithm weir.Algorithm, stores int) []porcupine.Operation {
	t.Helper()
	const goroutines, each = 8, 60
	still := func() weir.Instant { return duelStart }
	p := newPolicy(t, "p", weir.Limit{Rate: capacity, Per: weir.Every(time.Hour), Algorithm: algorithm})
	prefix := fmt.Sprintf("linear%d:", prefixes.Add(1))
	var nodes []*Store
	for range stores {
		nodes = append(nodes, open(t, Config{Redis: server(redis.Addr()), Prefix: prefix, Now: still}))
	}
	history := make([]porcupine.Operation, goroutines*each)
	start, began := make(chan struct{}), time.Now()
	var all sync.WaitGroup
	for g := range goroutines {
		rnd := rand.New(rand.NewPCG(seed, uint64(g)))
		all.Go(func() {
			<-start
			for i := range each {
				in := drawInput(rnd)
				called := time.Since(began)
				out, err := ask(nodes[g%stores], p, in)
				if err != nil {
					t.Errorf("seed %d: goroutine %d, call %d: %v", seed, g, i, err)
					return
				}
				history[g*each+i] = porcupine.Operation{ClientId: g, Input: in, Call: int64(called), Output: out, Return: int64(time.Since(began))}
			}
		})
	}
	close(start)
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return history
}

func drawInput(rnd *rand.Rand) input {
	switch n := rnd.IntN(100); {
	case n < 5:
		return input{op: weir.ResetEach}
	case n < 30:
		return input{weir.PeekEach, 1 + rnd.Int64N(3)}
	}
	return input{weir.TakeEach, 1 + rnd.Int64N(3)}
}

func ask(s *Store, p *weir.Policy, in input) (output, error) {
	if in.op == weir.TakeEach {
		d, err := s.Take(context.Background(), p, "k", in.cost)
		return output{d.Allowed, d.Remaining}, err
	}
	b := weir.Batch{Op: in.op, Charges: []weir.Charge{{Policy: p, Key: "k", Cost: in.cost}}}
	err := s.Do(context.Background(), &b)
	return output{b.Decisions[0].Allowed, b.Decisions[0].Remaining}, err
}

// historyText formats a history in the order of its calls.
func historyText(history []porcupine.Operation) (text string) {
	history = slices.Clone(history)
	slices.SortFunc(history, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	for _, o := range history {
		in, out := o.Input.(input), o.Output.(output)
		text += fmt.Sprintf("  %9d to %9d ns: %s %d: %+v\n", o.Call, o.Return, ops[in.op], in.cost, out)
	}
	return text
}
