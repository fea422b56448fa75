package redistest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const shardCount = 3

// Cluster is a Redis Cluster of three masters with one replica each.
//
// A master that is killed or paused is replaced by its replica after the node time-out
// and about a second. Redis's defaults hold: while slots have no master, no node takes
// commands, unless Config("cluster-require-full-coverage", "no") is given.
type Cluster struct {
	t     testing.TB
	nodes []*Server // at first three masters, then their replicas in the same order
}

// StartCluster starts the nodes and waits until all of them take commands and every
// master has its replica.
func StartCluster(t testing.TB, opts ...Option) *Cluster {
	t.Helper()
	set := newSettings(opts)
	set = set.with(
		"cluster-enabled yes",
		"cluster-node-timeout "+strconv.FormatInt(set.nodeTimeout.Milliseconds(), 10),
		"cluster-allow-replica-migration no", // replicas stay with their masters
		// On a busy machine an election may fail. When the next one comes, the data would be too
		// old for it, and the slots would never have a master again.
		"cluster-replica-validity-factor 0",
	)
	c := &Cluster{t: t}
	for range 2 * shardCount {
		c.nodes = append(c.nodes, newServer(t, set))
	}
	for _, node := range c.nodes {
		node.awaitReady()
	}
	c.assignSlots()
	c.introduce()
	c.replicate()
	await(t, "the cluster to be complete", convergeLimit, func() error { return c.ok(2 * shardCount) })
	return c
}

// assignSlots gives each master its third. Epochs that differ from the start spare
// the nodes their settling of equal ones.
func (c *Cluster) assignSlots() {
	c.t.Helper()
	for i, node := range c.nodes {
		node.MustDo("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		if i < shardCount {
			first, next := slotCount*i/shardCount, slotCount*(i+1)/shardCount
			node.MustDo("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(next-1))
		}
	}
}

// introduce has every pair of nodes meet, which is quicker than gossip.
func (c *Cluster) introduce() {
	c.t.Helper()
	for i, node := range c.nodes {
		for _, other := range c.nodes[i+1:] {
			node.MustDo("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(other.Port()))
		}
	}
	await(c.t, "the nodes to know each other", convergeLimit, func() error {
		for _, node := range c.nodes {
			if err := node.knows(len(c.nodes)); err != nil {
				return err
			}
		}
		return nil
	})
}

// knows counts the nodes in a node's list, itself included. Those that have not shaken
// hands yet do not count.
func (s *Server) knows(want int) error {
	r, err := s.do(pollTimeout, "CLUSTER", "NODES")
	if err != nil {
		return err
	}
	got := strings.Count(r.Text, "\n") - strings.Count(r.Text, "handshake")
	if got != want {
		return fmt.Errorf("%s knows %d of %d nodes", s.Addr(), got, want)
	}
	return nil
}

func (c *Cluster) replicate() {
	c.t.Helper()
	for i, master := range c.nodes[:shardCount] {
		id := master.MustDo("CLUSTER", "MYID").Text
		c.nodes[shardCount+i].MustDo("CLUSTER", "REPLICATE", id)
	}
}

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string { return addrs(c.nodes) }

// Nodes returns all nodes.
func (c *Cluster) Nodes() []*Server { return c.nodes }

// Masters returns the masters in the order of their slots, as a node that runs sees
// them now: just after a Kill, the killed one is still among them.
func (c *Cluster) Masters() (masters []*Server) {
	c.t.Helper()
	for _, r := range c.view() {
		if master := c.byPort(r.ports[0]); !slices.Contains(masters, master) {
			masters = append(masters, master)
		}
	}
	return masters
}

// MasterOf returns the master of a key's slot, as a node that runs sees it now.
func (c *Cluster) MasterOf(key string) *Server {
	c.t.Helper()
	slot := slotOf(key)
	for _, r := range c.view() {
		if r.first <= slot && slot <= r.last {
			return c.byPort(r.ports[0])
		}
	}
	c.t.Fatalf("redistest: slot %d of key %q has no master", slot, key)
	return nil
}

// ReplicaOf returns the replica of a master, as a node that runs sees it now.
func (c *Cluster) ReplicaOf(master *Server) *Server {
	c.t.Helper()
	for _, r := range c.view() {
		if r.ports[0] == master.Port() && len(r.ports) > 1 {
			return c.byPort(r.ports[1])
		}
	}
	c.t.Fatalf("redistest: %s is no master with a replica", master.Addr())
	return nil
}

// WaitOK waits until all nodes that run take commands, agree on the masters of all
// slots, and these masters run: after a Kill or Pause of a master, until its replica
// has taken over. A node that was started again must be a replica in sync, or a master.
func (c *Cluster) WaitOK() {
	c.t.Helper()
	await(c.t, "the cluster to be well", convergeLimit, func() error { return c.ok(0) })
}

// ok says what is wrong with the cluster, which must list at least listed nodes.
func (c *Cluster) ok(listed int) error {
	nodes := running(c.nodes)
	if len(nodes) == 0 {
		return errNoNode
	}
	var agreed []slotRange
	for i, node := range nodes {
		view, err := c.viewOf(node)
		if err != nil {
			return err
		}
		if i == 0 {
			agreed = view
		}
		if !slices.EqualFunc(view, agreed, sameMaster) {
			return fmt.Errorf("%s and %s disagree: %v and %v", node.Addr(), nodes[0].Addr(), view, agreed)
		}
		if err := c.covered(view, listed); err != nil {
			return fmt.Errorf("%s: %w", node.Addr(), err)
		}
		if err := c.serves(node, view); err != nil {
			return err
		}
	}
	return nil
}

// covered says whether masters that run have all slots.
func (c *Cluster) covered(view []slotRange, listed int) error {
	slots, nodes := 0, 0
	for _, r := range view {
		slots += r.last - r.first + 1
		nodes += len(r.ports)
		if master := c.byPort(r.ports[0]); !master.up() {
			return fmt.Errorf("the master of slots %d to %d is down", r.first, r.last)
		}
	}
	if slots != slotCount || nodes < listed {
		return fmt.Errorf("%d of %d slots have a master, and %d nodes of %d are listed", slots, slotCount, nodes, listed)
	}
	return nil
}

// serves says whether a node takes commands for its slots or, as a replica, is in
// sync with its master.
func (c *Cluster) serves(node *Server, view []slotRange) error {
	r, err := node.do(pollTimeout, "CLUSTER", "INFO")
	if err != nil {
		return err
	}
	if state := fieldsOf(r.Text)["cluster_state"]; state != "ok" {
		return fmt.Errorf("cluster_state of %s is %q", node.Addr(), state)
	}
	fields, err := node.info(pollTimeout, "replication")
	if err != nil {
		return err
	}
	if fields["role"] == "slave" && fields["master_link_status"] != "up" {
		return fmt.Errorf("the replica %s is not in sync", node.Addr())
	}
	owns := slices.ContainsFunc(view, func(r slotRange) bool { return r.ports[0] == node.Port() })
	if fields["role"] == "master" && !owns {
		return fmt.Errorf("%s is a master without slots", node.Addr())
	}
	return nil
}

// slotRange is one entry of CLUSTER SLOTS.
type slotRange struct {
	first, last int
	ports       []int // the master's, then those of replicas that are in sync
}

func sameMaster(a, b slotRange) bool {
	return a.first == b.first && a.last == b.last && a.ports[0] == b.ports[0]
}

var errNoNode = errors.New("no node of the cluster runs")

// view returns what the first node that answers says.
func (c *Cluster) view() (view []slotRange) {
	c.t.Helper()
	await(c.t, "a node that tells the slots", commandTimeout, func() error {
		err := errNoNode
		for _, node := range running(c.nodes) {
			if view, err = c.viewOf(node); err == nil {
				return nil
			}
		}
		return err
	})
	return view
}

// viewOf asks a node for the slots.
func (c *Cluster) viewOf(node *Server) (view []slotRange, err error) {
	reply, err := node.do(pollTimeout, "CLUSTER", "SLOTS")
	if err != nil {
		return nil, err
	}
	for _, item := range reply.Items {
		r, err := c.parseRange(item)
		if err != nil {
			return nil, fmt.Errorf("CLUSTER SLOTS of %s: %w", node.Addr(), err)
		}
		view = append(view, r)
	}
	slices.SortFunc(view, func(a, b slotRange) int { return a.first - b.first })
	return view, nil
}

// parseRange reads an entry: first slot, last slot, then a host, port, … per node.
func (c *Cluster) parseRange(item Reply) (r slotRange, err error) {
	if len(item.Items) < 3 {
		return r, fmt.Errorf("an entry %v", item)
	}
	numbers := []string{item.Items[0].Text, item.Items[1].Text}
	for _, node := range item.Items[2:] {
		if len(node.Items) < 2 {
			return r, fmt.Errorf("a node %v", node)
		}
		numbers = append(numbers, node.Items[1].Text)
	}
	for _, digits := range numbers {
		n, err := strconv.Atoi(digits)
		if err != nil {
			return r, err
		}
		r.ports = append(r.ports, n)
	}
	r.first, r.last, r.ports = r.ports[0], r.ports[1], r.ports[2:]
	if c.byPort(r.ports[0]) == nil {
		return r, fmt.Errorf("an unknown master %d", r.ports[0])
	}
	return r, nil
}

// byPort returns nil for a port of no node.
func (c *Cluster) byPort(port int) *Server {
	for _, node := range c.nodes {
		if node.Port() == port {
			return node
		}
	}
	return nil
}

func addrs(servers []*Server) (list []string) {
	for _, s := range servers {
		list = append(list, s.Addr())
	}
	return list
}

// running returns the servers that can answer.
func running(servers []*Server) (list []*Server) {
	for _, s := range servers {
		if s.up() {
			list = append(list, s)
		}
	}
	return list
}
