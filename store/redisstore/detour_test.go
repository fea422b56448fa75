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
	for i, key := range signposts(len(s.lanes)) {
		if got := s.laneOf(key); got != s.lanes[i] || got.signpost != key {
			t.Fatalf("lane %d has the signpost %q, which is no key of it", i, got.signpost)
		}
	}
	for _, p := range twoWays(t) {
		charges := onThree(s, p, 1, 1, 1)
		away := rowKey(s.rowPrefix(p.Name()), charges[2].Key) // on master 0
		sender := newSender(s.laneOf(away), 0, s.client)
		sender.arrived(way{slot: redisconn.Slot(away)}, io.ErrUnexpectedEOF)
		s.answering.Store(s.laneOf(rowKey(s.rowPrefix(p.Name()), charges[1].Key)))
		before := redirections(cluster.Masters()[1])
		n, err := s.resolve(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		r := newRequest()
		r.ask(n, charges[2].Key, 1)
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

// After a failure, commands for the same slot go by way of a lane that has answers.
func TestDetours(t *testing.T) {
	s := &Store{cluster: true}
	for _, key := range signposts(3) {
		l := newLane(s)
		l.signpost = key
		s.lanes = append(s.lanes, l)
	}
	one, two := newSender(s.lanes[0], 0, nil), newSender(s.lanes[1], 0, nil)
	cmd := rueidis.Builder{}.Arbitrary("PING").Build().SetSlot("a")
	other := cmd.SetSlot("b")
	straight := way{slot: cmd.Slot()}
	if one.arrived(straight, nil); one.wayOf(cmd) != straight || s.answering.Load() != s.lanes[0] {
		t.Error("after an answer it does not go straight on, or others do not know of it")
	}
	two.arrived(straight, io.EOF)
	detour := two.wayOf(cmd)
	if want := (way{cmd.Slot(), s.lanes[0]}); detour != want {
		t.Errorf("after a failure it goes %v, want %v", detour, want)
	}
	if sent := detour.send(cmd); sent.Slot() != redisconn.Slot(s.lanes[0].signpost) {
		t.Error("what takes a detour is sent elsewhere")
	}
	if got := two.wayOf(other); got.via != nil {
		t.Error("another slot's commands take a detour, too")
	}
	two.arrived(detour, io.EOF)
	if s.answering.Load() != nil || two.wayOf(cmd).via == nil {
		t.Error("a detour failed, and it is taken again, or none is")
	}
	one.arrived(straight, nil)
	one.arrived(straight, io.EOF)
	if s.answering.Load() != nil {
		t.Error("a lane failed, and others still go by way of it")
	}
	two.lost[cmd.Slot()] = weir.Now()
	if two.wayOf(cmd) != straight {
		t.Error("it goes on taking detours")
	}
}
