package rig

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/weirlimit/weir/faults/internal/history"
)

// OneShots are callers that open a connection for each call. Their results are part of the
// load's history; their keys begin with "new".
type OneShots struct {
	load  *Load  // set by StartOneShots, like all of it
	fleet *Fleet // whose client has no connections to use again
	stop  chan struct{}
	done  chan struct{} // closed when the last answer is there
}

// StartOneShots starts so many calls per second, whether answers come or not. Stop them before
// the load.
func (l *Load) StartOneShots(perSecond int) *OneShots {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * requestLimit}
	n := &OneShots{
		load: l, fleet: &Fleet{Daemons: l.fleet.Daemons, t: l.fleet.t, client: client},
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	go n.run(time.Second / time.Duration(perSecond))
	l.fleet.t.Cleanup(n.Stop)
	return n
}

func (n *OneShots) run(every time.Duration) {
	defer close(n.done)
	var wg sync.WaitGroup
	defer wg.Wait()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-n.stop:
			return
		case <-tick.C:
			wg.Go(func() { n.ask(fmt.Sprintf("new%d", i%10)) })
		}
	}
}

func (n *OneShots) ask(key string) {
	d := history.Decision{Key: key, Sent: n.load.Now()}
	answer, err := n.fleet.Ask(0, key, 1)
	d.Received, d.Status, d.Allowed, d.Reason = n.load.Now(), answer.Status, answer.Allowed, answer.Reason
	if err != nil {
		d.Err = err.Error()
	}
	n.load.mu.Lock()
	defer n.load.mu.Unlock()
	n.load.list = append(n.load.list, d)
}

// Stop waits for the last answers.
func (n *OneShots) Stop() {
	select {
	case <-n.stop:
	default:
		close(n.stop)
	}
	<-n.done
}
