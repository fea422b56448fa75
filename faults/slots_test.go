package faults

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/faults/internal/rig"
	"github.com/weirlimit/weir/internal/redistest"
)

const (
	slots      = 4
	jobTime    = 5 * time.Millisecond
	slotConfig = `policies:
  default: {limits: [{rate: 100, per: 1s, burst: 100}]}
  jobs: {limits: [{rate: 4, algorithm: concurrency}]}
`
	// A busy machine must not decide how many jobs there are.
	slotTimeout = "store: {redis: {timeout: 1s}}\n"
)

// F27: short jobs on two daemons share a few slots in Redis. Memory and Redis take turns,
// so that both meet the same neighbours.
func TestSlotsShared(t *testing.T) {
	tr := try(t, "F27", "4 slots in Redis, 5 ms jobs by 6 workers on each of two daemons, compared with 6 workers on one daemon that counts in memory",
		"never more than 4 jobs at once; jobs ≥ 0.8 × those in memory; neither daemon below 0.4 of its half (medians of three)")
	alone := tr.fleet(1, "-c", config(tr, slotConfig))
	shared := tr.fleet(2, "-c", config(tr, slotConfig+slotTimeout), "--redis", redistest.Start(t).Addr())
	length := pick(5*time.Second, 500*time.Millisecond)
	var inMemory, inRedis, ratios, least []float64
	most := 0
	for range 3 {
		memory := work(tr, alone, length)
		redis := work(tr, shared, length)
		most = max(most, memory.most, redis.most)
		all := float64(sum(redis.jobs))
		inMemory, inRedis = append(inMemory, float64(sum(memory.jobs))), append(inRedis, all)
		ratios = append(ratios, all/inMemory[len(inMemory)-1])
		least = append(least, float64(slices.Min(redis.jobs))/(inMemory[len(inMemory)-1]/2))
	}
	alone.Stop()
	tier := shared.Stop()

	tr.note("jobs in memory", "%.0f", median(inMemory))
	tr.note("jobs in Redis", "%.0f", median(inRedis))
	bound, formula := float64(slots), "the slots"
	if tier.Decisions.Fallback > 0 {
		bound, formula = 2*slots, "twice the slots, as a daemon decided alone"
	}
	tr.atMost("jobs at once", float64(most), bound, formula)
	tr.ratio("of the jobs in memory", median(ratios), 0.8)
	tr.ratio("of its half, the daemon with fewer", median(least), 0.4)
	tr.note("decided alone", "%d", tier.Decisions.Fallback)
}

// worked is what workers did: how many jobs by each daemon, and how many at once.
type worked struct {
	jobs []int
	most int
}

// work has six workers at each daemon, each of which reserves a slot, works for jobTime
// and gives the slot back. A refused caller tries again after RetryAfter, and
// after 4 ms at most.
func work(tr *trial, fleet *rig.Fleet, length time.Duration) worked {
	tr.Helper()
	const workers, patience = 6, 4 * time.Millisecond
	var (
		mu  sync.Mutex // guards the next two
		now int
		w   = worked{jobs: make([]int, len(fleet.Daemons))}
		wg  sync.WaitGroup
	)
	begin := func(by int) {
		mu.Lock()
		defer mu.Unlock()
		now += by
		w.most = max(w.most, now)
	}
	end := time.Now().Add(length)
	for i := range workers * len(fleet.Daemons) {
		node := i % len(fleet.Daemons)
		wg.Go(func() {
			for time.Now().Before(end) {
				id, retry := reserveSlot(tr, fleet, node)
				if id == "" {
					time.Sleep(min(retry, patience))
					continue
				}
				begin(1)
				time.Sleep(jobTime) // the job
				begin(-1)
				post(tr, fleet, node, "/v1/commit", fmt.Sprintf(`{"id":%q}`, id), &struct{}{})
				mu.Lock()
				w.jobs[node]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return w
}

// reserveSlot returns "" if there is none, and when to try again.
func reserveSlot(tr *trial, fleet *rig.Fleet, node int) (id string, retry time.Duration) {
	tr.Helper()
	var answer struct {
		ID           string `json:"id"`
		RetryAfterMS int64  `json:"retry_after_ms"`
	}
	post(tr, fleet, node, "/v1/reserve", `{"policy":"jobs","key":"queue","ttl_ms":10000}`, &answer)
	return answer.ID, time.Duration(max(0, answer.RetryAfterMS)) * time.Millisecond
}

// post sends JSON to a daemon, and reads the answer, which must be a 200.
func post(tr *trial, fleet *rig.Fleet, node int, path, body string, into any) {
	tr.Helper()
	status, text, _, err := fleet.Post(node, path, []byte(body))
	if err == nil && status == http.StatusOK {
		err = json.Unmarshal([]byte(text), into)
	}
	if err != nil || status != http.StatusOK {
		tr.Errorf("%s %s: status %d, %s, %v", path, body, status, text, err)
	}
}

func sum(list []int) (n int) {
	for _, x := range list {
		n += x
	}
	return n
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}
