package redisconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/redis/rueidis"
)

// masters returns the addresses of the servers that take writes now: the server, the
// primary that the Sentinels name, or the masters of the Cluster with slots.
func (c *Conn) masters(ctx context.Context) (addrs []string, err error) {
	nodes := c.Client.Nodes()
	if !c.Cluster {
		for addr := range nodes {
			addrs = append(addrs, addr)
		}
		return addrs, nil
	}
	var problems []error
	for addr, node := range nodes { // in an order that differs each time
		addrs, err := c.askMasters(ctx, addr, node)
		if err == nil {
			return addrs, nil
		}
		problems = append(problems, fmt.Errorf("masters of the cluster: %s: %w", addr, err))
	}
	return nil, errors.Join(problems...)
}

func (c *Conn) askMasters(ctx context.Context, addr string, node rueidis.Client) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.DialTimeout+c.config.Timeout)
	defer cancel()
	ranges, err := node.Do(ctx, node.B().ClusterSlots().Build()).ToArray()
	if err != nil {
		return nil, err
	}
	return slotMasters(ranges, addr)
}

// slotMasters reads the reply to CLUSTER SLOTS of a node: for each range of slots the first,
// the last, and for each node, its master first, host, port and more. A node that does not
// know its own host leaves it out.
func slotMasters(ranges []rueidis.RedisMessage, from string) (addrs []string, err error) {
	for _, r := range ranges {
		fields, err := r.ToArray()
		if err != nil || len(fields) < 3 {
			return nil, errors.New("CLUSTER SLOTS has a range without a master")
		}
		addr, err := nodeAddr(fields[2], from)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	if len(addrs) == 0 {
		return nil, errors.New("no slot has a master")
	}
	return addrs, nil
}

func nodeAddr(node rueidis.RedisMessage, from string) (string, error) {
	fields, err := node.ToArray()
	if err != nil || len(fields) < 2 {
		return "", errors.New("CLUSTER SLOTS has a master without a port")
	}
	port, err := fields[1].AsInt64()
	if err != nil {
		return "", fmt.Errorf("CLUSTER SLOTS: port of a master: %w", err)
	}
	host, err := fields[0].ToString()
	if err != nil || host == "" {
		host, _, _ = net.SplitHostPort(from)
	}
	return net.JoinHostPort(host, strconv.FormatInt(port, 10)), nil
}
