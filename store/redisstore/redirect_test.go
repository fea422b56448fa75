package redisstore

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redisconn"
	"github.com/weirlimit/weir/internal/redistest"
)

// clusterRedirects sends commands by way of a lane on another master: they are redirected, and
// charged once.
func clusterRedirects(t *testing.T, cluster *redistest.Cluster, to Server) {
	s := open(t, Config{Redis: to, Now: still})
	for i, key := range sampleKeys(len(s.queues)) {
		if got := s.queueOf(key); got != s.queues[i] || got.sampleKey != key {
			t.Fatalf("lane %d has the sampleKey %q, which is no key of it", i, got.sampleKey)
		}
	}
	for _, p := range twoWays(t) {
		charges := onThree(s, p, 1, 1, 1)
		away := rowKey(s.rowPrefix(p.Name()), charges[2].Key) // on master 0
		sender := newSender(s.queueOf(away), 0, s.client)
		sender.noteReply(route{slot: redisconn.Slot(away)}, io.ErrUnexpectedEOF)
		s.healthy.Store(&healthyNode{key: rowKey(s.rowPrefix(p.Name()), charges[1].Key)})
		before := redirections(cluster.Masters()[1])
		n, err := s.resolve(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		r := newRequest()
		r.setTake(n, charges[2].Key, 1)
		r.begin(weir.Now().Add(time.Second))
		sender.requests = []*request{r}
		sender.sort()
		sender.sendTakes()
		sender.sendCalls()
		if <-r.done; r.outcome() != nil || !r.decision.Allowed {
			t.Errorf("%s: by a detour: %s, %v", p.Name(), show(r.decision), r.outcome())
		}
		if got := redirections(cluster.Masters()[1]) - before; got == 0 {
			t.Errorf("%s: the other master redirected nothing", p.Name())
		}
		wantEach(t, "after one take by a detour", s, charges, 100, 100, 99)
	}
}

// redirections returns how many commands a server has told to go elsewhere.
func redirections(server *redistest.Server) (n int) {
	_, after, _ := strings.Cut(server.MustDo("INFO", "errorstats").Text, "errorstat_MOVED:count=")
	fmt.Sscan(after, &n) // 0 if there were none
	return n
}

// evalOf returns a command for a key.
func evalOf(key string) rueidis.Completed {
	return rueidis.Builder{}.Arbitrary("EVALSHA", "of a script", "1", key).Build().SetSlot(key)
}

// After a failure, commands of a lane go by way of a key that has answers: those of slots that
// have failed in any case, the others if it had them since.
func TestDetours(t *testing.T) {
	s := &Store{cluster: true}
	for _, key := range sampleKeys(3) {
		l := newSendQueue(s)
		l.sampleKey = key
		s.queues = append(s.queues, l)
	}
	well, ill := newSender(s.queues[0], 0, nil), newSender(s.queues[1], 0, nil)
	answer := func() *healthyNode { // to a command for "a" that is sent now
		first := well.routeOf(evalOf("a"), weir.Now())
		well.noteReply(first, nil)
		return first.candidate
	}
	known := answer()
	if known == nil || known.key != "a" || s.healthy.Load() != known {
		t.Fatalf("after an answer %v guides, want it", s.healthy.Load())
	}
	if w := well.routeOf(evalOf("b"), weir.Now()); w.via != nil || w.candidate != nil {
		t.Errorf("while there is a guide it goes %+v, want straight, and looks for none", w)
	}
	if w := well.routeOf(evalOf("b"), weir.Now().Add(2*healthyFor)); w.candidate == nil || w.candidate.key != "b" {
		t.Error("a guide that answered long ago is kept")
	}

	ill.noteReply(ill.routeOf(evalOf("c"), weir.Now()), io.EOF)
	redirected := ill.routeOf(evalOf("c"), weir.Now())
	if redirected.via != known || ill.routeOf(evalOf("d"), weir.Now()).via != nil {
		t.Error("with a guide of before, what has failed does not go by it, or its neighbours do")
	}
	if ill.noteReply(redirected, io.EOF); s.healthy.Load() != nil {
		t.Error("a guide that failed is kept")
	}
	if ill.routeOf(evalOf("c"), weir.Now()).via == nil || ill.routeOf(evalOf("d"), weir.Now()).via != nil {
		t.Error("without a guide, what has failed goes straight on, or its neighbours do not")
	}
	known = answer()
	for _, key := range []string{"c", "d"} {
		w := ill.routeOf(evalOf(key), weir.Now())
		if sent := w.send(evalOf(key)); w.via != known || sent.Slot() != redisconn.Slot("a") {
			t.Errorf("%s goes %+v, want by way of a", key, w)
		}
	}

	if w := ill.routeOf(evalOf("c"), weir.Now().Add(redirectFor)); w.via != nil {
		t.Error("it goes on taking detours")
	}
}
