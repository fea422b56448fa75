package redistest

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
)

const masterName = "weir-test"

// Sentinel is a primary with one replica, watched by three Sentinels.
//
// A primary that is killed or paused is replaced after about 2 s: the Sentinels call
// it down after 500 ms, and two of them must agree. When it comes back, it takes
// writes, which are lost, until the Sentinels make it a replica after some 3 s.
// Sentinels that are started again have Redis's own, slower periods.
type Sentinel struct {
	t     testing.TB // set by StartSentinel, like the next one
	nodes []*Server  // the Sentinels

	mu      sync.Mutex // guards the fields below
	primary *Server
	replica *Server
}

// StartSentinel starts the servers and waits until the replica is in sync and each
// Sentinel knows everyone.
func StartSentinel(t testing.TB, opts ...Option) *Sentinel {
	t.Helper()
	set := newSettings(opts)
	s := &Sentinel{t: t}
	s.primary = newServer(t, set)
	s.primary.awaitReady()
	s.replica = newServer(t, set.with(fmt.Sprintf("replicaof 127.0.0.1 %d", s.primary.Port())))
	s.replica.awaitReady()
	s.awaitReplica()
	for range 3 {
		s.nodes = append(s.nodes, newServer(t, watchSettings(set, s.primary), "--sentinel"))
	}
	for _, node := range s.nodes {
		node.awaitReady()
		shortenPeriods(node)
	}
	s.WaitInSync()
	for _, node := range s.nodes {
		publishEvery(node, "500")
	}
	return s
}

// watchSettings returns the settings of a Sentinel for servers with settings set.
func watchSettings(set settings, primary *Server) settings {
	watch := settings{tls: set.tls}
	watch.extra = []string{
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 2", masterName, primary.Port()),
		"sentinel down-after-milliseconds " + masterName + " 500",
		"sentinel failover-timeout " + masterName + " 2000",
		"sentinel parallel-syncs " + masterName + " 1",
	}
	if set.password != "" {
		watch.extra = append(watch.extra,
			"sentinel auth-user "+masterName+" "+set.userName(),
			"sentinel auth-pass "+masterName+" "+quote(set.password))
	}
	return watch
}

// shortenPeriods shortens the periods of a Sentinel that have no setting.
//
// They hang together. A new server gets its first ping after PING-PERIOD and must
// answer within down-after, 500 ms. A replica is promoted only if its last INFO is
// younger than five PING-PERIODs. A Sentinel that slept for TILT-TRIGGER stops
// watching for TILT-PERIOD, which must not happen on a busy machine.
func shortenPeriods(node *Server) {
	node.t.Helper()
	node.MustDo("SENTINEL", "DEBUG", "PING-PERIOD", "250", "INFO-PERIOD", "400", "ASK-PERIOD", "100",
		"TILT-TRIGGER", "10000", "TILT-PERIOD", "1000")
	publishEvery(node, "200") // or else they need 2 s to find each other
}

// publishEvery sets how often a Sentinel tells the others what it knows, and with it
// for how long it bears a primary that it takes for a replica: four periods. These
// must exceed the second that the others may need to hear of a promotion, or they
// undo it.
func publishEvery(node *Server, milliseconds string) {
	node.t.Helper()
	node.MustDo("SENTINEL", "DEBUG", "PUBLISH-PERIOD", milliseconds)
}

// MasterName returns the name by which Sentinels know the primary.
func (s *Sentinel) MasterName() string { return masterName }

// SentinelAddrs returns the addresses of the Sentinels.
func (s *Sentinel) SentinelAddrs() []string { return addrs(s.nodes) }

// Sentinels returns the Sentinels.
func (s *Sentinel) Sentinels() []*Server { return s.nodes }

// Primary returns the primary. After a failover it is the old one until WaitPromoted
// has returned.
func (s *Sentinel) Primary() *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.primary
}

// Replica returns the other server.
func (s *Sentinel) Replica() *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replica
}

// Failover has the Sentinels promote the replica while the primary is well. It returns
// when the replica has become a primary; clients hear of it about a second later, see
// WaitPromoted. Writes that the old primary takes until it is a replica, some two
// seconds after that, are lost.
func (s *Sentinel) Failover() {
	s.t.Helper()
	next := s.Replica()
	await(s.t, "a failover to "+next.Addr(), convergeLimit, func() error {
		err := next.hasRole("master")
		if err == nil {
			return nil
		}
		// Asked again, since a Sentinel may give up. While it is busy, it says so.
		_, refused := s.nodes[0].do(pollTimeout, "SENTINEL", "FAILOVER", masterName)
		return errors.Join(err, refused)
	})
}

// WaitPromoted waits until the replica is the primary and all Sentinels that run say
// so. Primary and Replica then change places, and the new primary is returned.
func (s *Sentinel) WaitPromoted() *Server {
	s.t.Helper()
	next := s.Replica()
	await(s.t, "the promotion of "+next.Addr(), convergeLimit, func() error { return s.promoted(next) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.primary, s.replica = s.replica, s.primary
	return s.primary
}

func (s *Sentinel) promoted(next *Server) error {
	if err := next.hasRole("master"); err != nil {
		return err
	}
	for _, node := range running(s.nodes) {
		r, err := node.do(pollTimeout, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", masterName)
		if err != nil {
			return err
		}
		if len(r.Items) != 2 || r.Items[1].Text != strconv.Itoa(next.Port()) {
			return fmt.Errorf("the Sentinel %s still names %v", node.Addr(), r.Items)
		}
	}
	return nil
}

// WaitInSync waits until Replica follows Primary and all Sentinels that run see both
// and each other as well, so that the next failover can begin.
func (s *Sentinel) WaitInSync() {
	s.t.Helper()
	s.awaitReplica()
	await(s.t, "the Sentinels to know everyone", convergeLimit, func() error {
		nodes := running(s.nodes)
		for _, node := range nodes {
			if err := seesAll(node, len(nodes)-1); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Sentinel) awaitReplica() {
	s.t.Helper()
	primary, replica := s.Primary(), s.Replica()
	await(s.t, "the replica to be in sync", convergeLimit, func() error { return replica.replicates(primary) })
}

// seesAll says what a Sentinel does not see of the primary, the replica and the
// other Sentinels that run.
func seesAll(node *Server, others int) error {
	if err := seesWell(node, "MASTERS", "master", 1); err != nil {
		return err
	}
	if err := seesWell(node, "REPLICAS", "slave", 1); err != nil {
		return err
	}
	return seesWell(node, "SENTINELS", "sentinel", others)
}

// seesWell counts the instances of a kind with no flag but their kind's: not down,
// not disconnected. A replica must have reported its link, too, or it would not
// be promoted.
func seesWell(node *Server, list, kind string, want int) error {
	args := []string{"SENTINEL", list, masterName}
	if list == "MASTERS" {
		args = args[:2]
	}
	r, err := node.do(pollTimeout, args...)
	if err != nil {
		return err
	}
	got := 0
	for _, item := range r.Items {
		about := pairs(item)
		if about["flags"] == kind && (kind != "slave" || about["master-link-status"] == "ok") {
			got++
		}
	}
	if got != want {
		return fmt.Errorf("the Sentinel %s sees %d of %d %ss well", node.Addr(), got, want, kind)
	}
	return nil
}

// pairs reads an array of names and values by turns.
func pairs(r Reply) map[string]string {
	m := map[string]string{}
	for i := 0; i+1 < len(r.Items); i += 2 {
		m[r.Items[i].Text] = r.Items[i+1].Text
	}
	return m
}
