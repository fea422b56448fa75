package faults

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/faults/internal/history"
	"github.com/weirlimit/weir/faults/internal/rig"
	"github.com/weirlimit/weir/internal/redistest"
)

// F6: the primary crashes, and the Sentinels promote its replica.
func TestPromoted(t *testing.T) {
	tr := try(t, "F6", "primary killed, replica promoted by Sentinels", "E ≤ 3B; back ≤ 2 s after the Sentinels agree")
	sentinel := redistest.StartSentinel(t)
	fleet := tr.fleet(3, "--redis", strings.Join(sentinel.SentinelAddrs(), ","), "--sentinel", sentinel.MasterName())
	tr.outage(outage{
		fleet:  fleet,
		port:   sentinel.Primary().Port(),
		length: 0, // until the replica is promoted
		begin:  sentinel.Primary().Kill,
		mend:   func() { sentinel.WaitPromoted() },
		// What the primary had not yet sent to its replica is lost: at most a burst.
		// The killed primary takes no more writes: there is no split brain.
		bound:   2*B + B,
		formula: "2B + B for the failover",
		back:    2 * time.Second,
	})
}

// F6b: an operator has the replica promoted while the primary is well. Until Sentinels
// have made it a replica, it goes on taking writes, which are lost, from daemons that
// have not received it; then it refuses them as READONLY.
func TestSwitchover(t *testing.T) {
	tr := try(t, "F6b", "replica promoted by Sentinels while the primary is well: two primaries, then READONLY",
		"E ≤ 4B + r × the time with two primaries; no error reaches a caller; back ≤ 2 s after the old primary is a replica")
	sentinel := redistest.StartSentinel(t)
	fleet := tr.fleet(3, "--redis", strings.Join(sentinel.SentinelAddrs(), ","), "--sentinel", sentinel.MasterName())
	load := fleet.StartLoad(mix())
	load.For(pick(5*time.Second, time.Second))
	old := sentinel.Primary()
	fault := time.Now()
	sentinel.Failover()
	rig.Await(t, "the old primary to be a replica", patience, func() error { return hasRole(old, "slave") })
	demoted := time.Now()
	fleet.AwaitShared(patience)
	shared := time.Now()
	load.For(pick(5*time.Second, 500*time.Millisecond))
	list := load.Stop()
	tier := fleet.Stop()

	two := demoted.Sub(fault) // at most
	tr.note("two primaries for at most", "%s", brief(two))
	// An outage, if daemons take it for one: 2B. What the replica had not got: B. And
	// the other primary has a burst and a rate of its own while there are two.
	tr.judge(list, 2*B+B+B+r*two.Seconds(), "2B + B for the failover + B + r × that time")
	tr.within("shared again after", shared.Sub(demoted), 2*time.Second)
	tr.note("decided alone", "%d", tier.Decisions.Fallback)
	tr.stalled(list)
	tr.note("p99 meanwhile", "%s", brief(history.Percentile(history.Between(list, load.At(fault), load.At(shared)), 0.99)))
	tr.note("longest", "%s", brief(history.Percentile(history.Between(list, load.At(fault), load.At(shared)), 1)))
}

// hasRole says whether a server has become a master or a slave.
func hasRole(server *redistest.Server, want string) error {
	reply, err := server.Do("ROLE")
	if err != nil {
		return err
	}
	if role := reply.Items[0].Text; role != want {
		return fmt.Errorf("%s is a %s", server.Addr(), role)
	}
	return nil
}

// rowKey is the key of a subject's row in Redis.
func rowKey(subject string) string { return "weir:{" + rig.Policy + ":" + subject + "}" }

// clusterMix has hot keys on two masters.
func clusterMix() rig.Mix {
	return pick(mix(), rig.Mix{Rate: 450, Hot: 3, Cold: 9, HotShare: 0.9})
}

// storeTimeout is how long a daemon waits for Redis.
const storeTimeout = 10 * time.Millisecond

// F7: a master of a cluster crashes, and its replica takes over. When that happens is Redis's
// affair: alone on an idle machine, it takes 1.1 to 2.2 s longer than the node time-out, and could
// take 2.6 s. So weir's own part is judged by itself, and all of it if Redis was in time.
func TestClusterMasterKilled(t *testing.T) {
	nodeTimeout := pick(2*time.Second, time.Second)
	tr := try(t, "F7", "a master of a cluster killed, its replica takes over",
		"E ≤ 3B for its slots, ≤ 0 for others; back ≤ 0.5 s after there is a new master, and ≤ node time-out + 2.5 s after the kill if that was there in time")
	cluster := redistest.StartCluster(t, redistest.NodeTimeout(nodeTimeout), redistest.Config("cluster-require-full-coverage", "no"))
	fleet := tr.fleet(3, "--redis", strings.Join(cluster.Addrs(), ","))
	m := clusterMix()
	load := fleet.StartLoad(m)
	load.For(pick(5*time.Second, time.Second))
	victim := cluster.MasterOf(rowKey("hot0"))
	elsewhere := map[string]bool{}
	for _, key := range m.Keys() {
		elsewhere[key] = cluster.MasterOf(rowKey(key)) != victim
	}

	promoted := cluster.ReplicaOf(victim)
	fault := time.Now()
	victim.Kill()
	alone := fleet.AwaitUnavailable(fault, patience)
	rig.Await(t, "the replica to take over", patience, func() error { return hasRole(promoted, "master") })
	heirAt := time.Now()
	back := fleet.AwaitAvailable(time.Now(), patience)
	load.For(pick(5*time.Second, 500*time.Millisecond))
	for range 5 { // keys of all masters
		fleet.AwaitShared(patience)
	}
	list := load.Stop()
	tier := fleet.Stop()

	tr.judge(list, 2*B+B, "2B + B for the failover")
	var others []history.Decision
	for _, d := range list {
		if elsewhere[d.Key] {
			others = append(others, d)
		}
	}
	_, excess := history.Worst(history.Excesses(others, limit))
	bound, formula := 0.0, "0"
	if history.Percentile(others, 1) >= storeTimeout { // one may have been decided alone
		bound, formula = 2*B, "2B, as the machine was slow"
	}
	tr.atMost("E of slots elsewhere", excess, bound, formula)
	tr.note("decided alone", "%d", tier.Decisions.Fallback)
	tr.within("breaker open after", max(0, alone.Sub(fault)), openWithin)
	tr.note("the cluster itself had a new master after", "%s", brief(heirAt.Sub(fault)))
	tr.within("back after that", max(0, back.Sub(heirAt)), 500*time.Millisecond)
	tr.withinIf(heirAt.Sub(fault) <= nodeTimeout+2*time.Second, "back after", back.Sub(fault), nodeTimeout+2500*time.Millisecond)
	outage := func(list []history.Decision) []history.Decision {
		return history.Between(list, load.At(fault), load.At(back))
	}
	tr.stalled(list)
	tr.note("p99 meanwhile", "%s", brief(history.Percentile(outage(list), 0.99)))
	tr.note("p99 of slots elsewhere", "%s", brief(history.Percentile(outage(others), 0.99)))
}

// F7b: a slot moves to another master while its key is in use.
func TestReshard(t *testing.T) {
	tr := try(t, "F7b", "the slot of a hot key moved to another master", "E ≤ 0; no error reaches a caller")
	cluster := redistest.StartCluster(t)
	fleet := tr.fleet(3, "--redis", strings.Join(cluster.Addrs(), ","))
	load := fleet.StartLoad(clusterMix())
	load.For(pick(5*time.Second, time.Second))
	fault := load.Now()
	moves := pick(4, 2)
	for range moves {
		from := cluster.MasterOf(rowKey("hot0"))
		moveSlot(tr, cluster, rowKey("hot0"), other(cluster, from), func() {
			load.For(pick(time.Second, 300*time.Millisecond)) // clients are redirected
		})
		load.For(pick(time.Second, 300*time.Millisecond))
	}
	mended := load.Now()
	load.For(pick(5*time.Second, 500*time.Millisecond))
	list := load.Stop()
	fleet.AwaitShared(patience)
	tier := fleet.Stop()

	tr.note("moves", "%d", moves)
	bound, formula := healthy(tier, 0, "0")
	tr.judge(list, bound, formula)
	tr.note("decided alone", "%d", tier.Decisions.Fallback)
	tr.stalled(list)
	tr.note("p99 meanwhile", "%s", brief(history.Percentile(history.Between(list, fault, mended), 0.99)))
	tr.note("longest", "%s", brief(history.Percentile(history.Between(list, fault, mended), 1)))
}

func other(cluster *redistest.Cluster, master *redistest.Server) *redistest.Server {
	for _, m := range cluster.Masters() {
		if m != master {
			return m
		}
	}
	return nil
}

// moveSlot moves the slot of a key as redis-cli does. When its keys have moved, and
// before all nodes know, it calls between.
func moveSlot(tr *trial, cluster *redistest.Cluster, key string, to *redistest.Server, between func()) {
	tr.Helper()
	from := cluster.MasterOf(key)
	slot := from.MustDo("CLUSTER", "KEYSLOT", key).Text
	fromID, toID := from.MustDo("CLUSTER", "MYID").Text, to.MustDo("CLUSTER", "MYID").Text
	to.MustDo("CLUSTER", "SETSLOT", slot, "IMPORTING", fromID)
	from.MustDo("CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
	for {
		keys := from.MustDo("CLUSTER", "GETKEYSINSLOT", slot, "100").Items
		if len(keys) == 0 {
			break
		}
		args := []string{"MIGRATE", "127.0.0.1", strconv.Itoa(to.Port()), "", "0", "1000", "KEYS"}
		for _, k := range keys {
			args = append(args, k.Text)
		}
		from.MustDo(args...)
	}
	between()
	for _, node := range append([]*redistest.Server{to, from}, cluster.Masters()...) { // the new owner first
		node.MustDo("CLUSTER", "SETSLOT", slot, "NODE", toID)
	}
}
