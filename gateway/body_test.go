package gateway

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/weirlimit/weir/internal/jsonrpc"
	"github.com/weirlimit/weir/upstream"
)

// TestRoomForBodies announces long bodies that do not come: room is made for what has come.
func TestRoomForBodies(t *testing.T) {
	route, _ := newRouteTo(t, to(endpointAt("a")))
	bytesOf := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.TotalAlloc
	}
	before := bytesOf()
	for range 10 {
		r := post("")
		r.ContentLength = jsonrpc.MaxRequest
		if w := ask(route, r); w.Code != 400 {
			t.Fatal(w.Code, w.Body)
		}
	}
	if n := bytesOf() - before; n > 10*(firstRead+64<<10) {
		t.Errorf("%d bytes for ten empty bodies", n)
	}
}

// holdAnswers lets requests be answered when the channel is closed.
func (p *provider) holdAnswers() chan struct{} {
	hold := make(chan struct{})
	p.answer = func(*http.Request, string) (*http.Response, error) {
		<-hold
		return reply(200, `{"jsonrpc":"2.0","id":1,"result":"0x1"}`), nil
	}
	return hold
}

// TestRoomOfBodies bounds the bytes of the long bodies that requests have at once.
func TestRoomOfBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		route, p := newRouteTo(t, to(endpointAt("a")))
		hold := p.holdAnswers()
		long := `{"jsonrpc":"2.0","id":1,"method":"eth_call","params":["` + strings.Repeat("x", 4<<20) + `"]}`
		var wg sync.WaitGroup
		codes := make(chan int, 20)
		for range 20 { // of which 15 fit into 64 MiB
			wg.Go(func() { codes <- ask(route, post(long)).Code })
			synctest.Wait()
		}
		for range 5 {
			if code := <-codes; code != http.StatusServiceUnavailable {
				t.Error(code)
			}
		}
		w := ask(route, post(long))
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "too many long requests at once") {
			t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
		}
		short := make(chan int, 1)
		wg.Go(func() { short <- ask(route, post(blockNumber)).Code })
		close(hold)
		if code := <-short; code != 200 {
			t.Errorf("a short request: %d", code)
		}
		wg.Wait()
		for range 15 {
			if code := <-codes; code != 200 {
				t.Error(code)
			}
		}
		if n := route.room.taken; n != 0 {
			t.Errorf("%d bytes are still taken", n)
		}
	})
}

// of returns a request of a client whose body has no known length, or the one it announces.
func of(t *testing.T, client string, length int64, body io.Reader) *http.Request {
	r := httptest.NewRequestWithContext(upstream.WithClient(t.Context(), client), http.MethodPost, "/", body)
	r.ContentLength = length
	r.Header.Set("Content-Type", "application/json")
	return r
}

// TestRoomIsForWhatHasArrived has one client open many requests whose bodies do not come.
func TestRoomIsForWhatHasArrived(t *testing.T) {
	for name, length := range map[string]int64{"chunked": -1, "announced": jsonrpc.MaxRequest} {
		synctest.Test(t, func(t *testing.T) {
			route, _ := newRouteTo(t, to(endpointAt("a")))
			var wg sync.WaitGroup
			ends := make([]*io.PipeWriter, 100)
			for i := range ends {
				var body io.Reader
				body, ends[i] = io.Pipe()
				wg.Go(func() { ask(route, of(t, "A", length, body)) })
			}
			synctest.Wait()
			long := blockNumber + strings.Repeat(" ", 4<<20)
			for _, body := range []string{blockNumber, long} {
				if w := ask(route, of(t, "B", -1, strings.NewReader(body))); w.Code != 200 {
					t.Errorf("%s: %d bytes of another client: %d %s", name, len(body), w.Code, w.Body)
				}
			}
			for _, end := range ends {
				_ = end.CloseWithError(context.Canceled)
			}
			wg.Wait()
		})
	}
}

// TestRoomOfClients lets a client have half of the room.
func TestRoomOfClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		route, p := newRouteTo(t, to(endpointAt("a")))
		hold := p.holdAnswers()
		long := blockNumber + strings.Repeat(" ", 4<<20)
		var wg sync.WaitGroup
		var mu sync.Mutex
		got := map[string]map[int]int{"A": {}, "B": {}, "C": {}}
		for _, client := range []string{"A", "B", "C"} {
			for range 10 { // of which 7 fit into 32 MiB
				wg.Go(func() {
					code := ask(route, of(t, client, int64(len(long)), strings.NewReader(long))).Code
					mu.Lock()
					defer mu.Unlock()
					got[client][code]++
				})
				synctest.Wait()
			}
		}
		close(hold)
		wg.Wait()
		want(t, "statuses", got, map[string]map[int]int{"A": {200: 7, 503: 3}, "B": {200: 7, 503: 3}, "C": {200: 1, 503: 9}})
		want(t, "clients that still have room", len(route.room.byClient), 0)
	})
}
