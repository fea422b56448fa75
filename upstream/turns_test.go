package upstream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
)

// offered is a request of a test of turns.
type offered struct {
	client, class string
	after         time.Duration // since the one before
}

// What becomes of a request that is not sent.
const (
	refusedAtOnce = -1
	refusedLate   = -2 // after it has waited
)

// placesOf offers requests, and returns what became of each: the place in which it was sent, or one of the constants above.
func placesOf(t *testing.T, c Config, list []offered) (places []int) {
	t.Helper()
	pool, p := newPool(t, c)
	places = make([]int, len(list))
	var wg sync.WaitGroup
	for i, o := range list {
		time.Sleep(o.after)
		synctest.Wait()
		wg.Go(func() {
			call, began := call(), time.Now()
			call.Client, call.Class = o.client, o.class
			reply, err := pool.Send(request(context.Background(), i), call)
			limited := (*LimitedError)(nil)
			switch {
			case err == nil:
				reply.Body.Close()
			case !errors.As(err, &limited) || limited.Reason != weir.TooLate:
				t.Errorf("request %d: %v", i, err)
			case time.Since(began) == 0:
				places[i] = refusedAtOnce
			default:
				places[i] = refusedLate
			}
		})
		synctest.Wait()
	}
	wg.Wait()
	for place, r := range p.received {
		var i int
		_, _ = fmt.Sscanf(r.body, `{"id":%d,`, &i)
		places[i] = place
	}
	return places
}

// TestTurns lets the lines of clients and classes wait for an endpoint of one request per second.
func TestTurns(t *testing.T) {
	a, b, c := offered{client: "a"}, offered{client: "b"}, offered{client: "c"}
	x, y := offered{class: "x"}, offered{class: "y"}
	later := func(o offered) offered { o.after = 1500 * time.Millisecond; return o }
	for _, tt := range []struct {
		name string
		list []offered
		want []int // the place of each
	}{
		{"one client", []offered{a, a, a, a}, []int{0, 1, 2, 3}},
		{"two clients", []offered{a, a, a, a, b, b}, []int{0, 1, 3, 5, 2, 4}},
		{"three clients", []offered{a, a, a, a, b, b, c, c}, []int{0, 1, 4, 7, 2, 5, 3, 6}},
		{"two classes", []offered{x, x, x, x, y, y}, []int{0, 1, 3, 5, 2, 4}},
		{"one request each", []offered{a, b, c, x, y}, []int{0, 1, 2, 3, 4}},
		{"comes again", []offered{a, a, a, a, b, later(b), later(b)}, []int{0, 1, 3, 5, 2, 4, 6}},
	} {
		synctest.Test(t, func(t *testing.T) {
			got := placesOf(t, Config{MaxWait: 20 * time.Second, Endpoints: []Endpoint{endpointAt("a", limited(Rate{PerSecond: 1}))}}, tt.list)
			if !slices.Equal(got, tt.want) {
				t.Errorf("%s: the requests were sent as %v, want %v", tt.name, got, tt.want)
			}
		})
	}
}

// TestTurnsUnderLoad offers four times as much as an endpoint takes, in one line and in many. As long as no client has
// more waiting than another, whoever joins is sent, in the order of arrival.
func TestTurnsUnderLoad(t *testing.T) {
	for name, client := range map[string]func(i int) string{
		"one line": func(int) string { return "" }, "a line for each request": func(i int) string { return fmt.Sprint(i) },
	} {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			list := make([]offered, 1200)
			for i := range list {
				list[i] = offered{client: client(i), after: time.Duration(random.Int64N(int64(100 * time.Millisecond)))}
			}
			places := placesOf(t, Config{Endpoints: []Endpoint{endpointAt("a", limited(Rate{PerSecond: 5}))}}, list)
			sent := slices.DeleteFunc(slices.Clone(places), func(place int) bool { return place < 0 })
			if slices.Contains(places, refusedLate) || !slices.IsSorted(sent) || len(sent) < 300 {
				t.Errorf("%s: %d were sent, as %v", name, len(sent), places)
			}
		})
	}
}

// TestTurnsOfClients offers more than an endpoint takes, most of it by one of two clients: while both wait, each of them is
// sent as often as the other.
func TestTurnsOfClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var list []offered
		for range 100 {
			list = append(list, offered{"greedy", "", 0}, offered{"greedy", "", 0}, offered{"greedy", "", 0}, offered{"modest", "", 300 * time.Millisecond})
		}
		places := placesOf(t, Config{Endpoints: []Endpoint{endpointAt("a", limited(Rate{PerSecond: 5}))}}, list)
		late := map[string]int{}
		order := make([]string, len(list))
		for i, place := range places {
			if place >= 0 {
				order[place] = list[i].client
			}
			if place == refusedLate {
				late[list[i].client]++
			}
		}
		if late["modest"] > 0 || late["greedy"] > 20 { // of 180 that have joined
			t.Errorf("refused after they have waited: %v", late)
		}
		contested := order[10:140] // the first and the last ones do not compete
		ahead := 0
		for i, client := range contested {
			if ahead++; client == "modest" {
				ahead -= 2
			}
			if ahead < -4 || ahead > 4 { // a round has one of each, in any order, and the window begins in the middle of one
				t.Fatalf("one client is %d ahead of the other after %v", ahead, contested[:i+1])
			}
		}
	})
}

// TestRefusedLate offers four times as much as an endpoint takes, from several clients: some of them have more waiting than
// others, so that requests join which are refused later. ADR 0022 has the figures.
func TestRefusedLate(t *testing.T) {
	for _, tt := range []struct {
		name    string
		clients []string // each request is of one of them, at random
		percent float64  // of those that have joined
	}{
		{"two clients", []string{"a", "b"}, 7},
		{"five clients", []string{"a", "b", "c", "d", "e"}, 15},
		{"five clients, one of which sends half", []string{"a", "a", "a", "a", "b", "c", "d", "e"}, 19},
	} {
		t.Run(tt.name, func(t *testing.T) {
			late, joined := 0, 0
			for seed := range uint64(5) {
				synctest.Test(t, func(t *testing.T) {
					random := rand.New(rand.NewPCG(seed, 2))
					list := make([]offered, 1200)
					for i := range list {
						list[i] = offered{client: tt.clients[random.IntN(len(tt.clients))], after: time.Duration(random.Int64N(int64(100 * time.Millisecond)))}
					}
					for _, place := range placesOf(t, Config{Endpoints: []Endpoint{endpointAt("a", limited(Rate{PerSecond: 5}))}}, list) {
						switch {
						case place == refusedLate:
							late++
							joined++
						case place >= 0:
							joined++
						}
					}
				})
			}
			if got := 100 * float64(late) / float64(joined); math.Abs(got-tt.percent) > 1 {
				t.Errorf("%.1f %% of %d requests were refused after they had joined, want about %v %%", got, joined, tt.percent)
			}
		})
	}
}
