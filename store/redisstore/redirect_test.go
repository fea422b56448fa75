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

// clusterRedirects sends commands to another master: they are redirected, and charged once.
func clusterRedirects(t *testing.T, cluster *redistest.Cluster, to Server) {
	s := open(t, Config{Redis: to, Now: still})
	for i, key := range sampleKeys(len(s.queues)) {
		if got := s.queueOf(key); got != s.queues[i] || got.sampleKey != key {
			t.Fatalf("send queue %d has the sample key %q, which is not on its slots", i, got.sampleKey)
		}
	}
	for _, p := range twoWays(t) {
		charges := onThree(s, p, 1, 1, 1)
		failed := rowKey(s.rowPrefix(p.Name()), charges[2].Key) // on master 0
		sender := newSender(s.queueOf(failed), 0, s.client)
		sender.noteReply(route{slot: redisconn.Slot(failed)}, io.ErrUnexpectedEOF)
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
			t.Errorf("%s: redirected: %s, %v", p.Name(), show(r.decision), r.outcome())
		}
		if got := redirections(cluster.Masters()[1]) - before; got == 0 {
			t.Errorf("%s: the other master redirected nothing", p.Name())
		}
		wantEach(t, "after one redirected take", s, charges, 100, 100, 99)
	}
}

// redirections returns how many commands a server has replied to with MOVED.
func redirections(server *redistest.Server) (n int) {
	_, after, _ := strings.Cut(server.MustDo("INFO", "errorstats").Text, "errorstat_MOVED:count=")
	fmt.Sscan(after, &n) // 0 if there were none
	return n
}

// evalOf returns a command for a key.
func evalOf(key string) rueidis.Completed {
	return rueidis.Builder{}.Arbitrary("EVALSHA", "of a script", "1", key).Build().SetSlot(key)
}

// After a failure, commands are redirected through a healthy node: those for slots that have
// failed in any case, the others only if that node has replied since the failure.
func TestRedirects(t *testing.T) {
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
		t.Fatalf("after a reply the healthy node is %v, want the one that replied", s.healthy.Load())
	}
	if w := well.routeOf(evalOf("b"), weir.Now()); w.via != nil || w.candidate != nil {
		t.Errorf("with a healthy node the route is %+v, want a direct one without a candidate", w)
	}
	if w := well.routeOf(evalOf("b"), weir.Now().Add(2*healthyFor)); w.candidate == nil || w.candidate.key != "b" {
		t.Error("a healthy node that replied long ago is kept")
	}

	ill.noteReply(ill.routeOf(evalOf("c"), weir.Now()), io.EOF)
	redirected := ill.routeOf(evalOf("c"), weir.Now())
	if redirected.via != known || ill.routeOf(evalOf("d"), weir.Now()).via != nil {
		t.Error("with a healthy node from before the failure, a failed slot is not redirected, or another slot is")
	}
	if ill.noteReply(redirected, io.EOF); s.healthy.Load() != nil {
		t.Error("a healthy node that failed is kept")
	}
	if ill.routeOf(evalOf("c"), weir.Now()).via == nil || ill.routeOf(evalOf("d"), weir.Now()).via != nil {
		t.Error("without a healthy node, a failed slot is not redirected, or another slot is")
	}
	known = answer()
	for _, key := range []string{"c", "d"} {
		w := ill.routeOf(evalOf(key), weir.Now())
		if sent := w.send(evalOf(key)); w.via != known || sent.Slot() != redisconn.Slot("a") {
			t.Errorf("%s has the route %+v, want it redirected through a", key, w)
		}
	}

	if w := ill.routeOf(evalOf("c"), weir.Now().Add(redirectFor)); w.via != nil {
		t.Error("redirects do not end")
	}
}
