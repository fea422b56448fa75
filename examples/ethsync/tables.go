package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"text/tabwriter"
	"time"
)

const (
	month = 30 * 24 * time.Hour

	published = 13_000_000 // units of a month in batched mode, in tables that do not say how often they poll
)

var chains = []struct {
	name string
	chain
}{
	{"Ethereum", chain{12 * time.Second}}, {"Base", chain{2 * time.Second}}, {"BNB", chain{450 * time.Millisecond}},
}

// billed are the compute units of each call that count for the month, from the vendor's page
// "Compute Unit Costs".
var billed = map[string]int64{
	blockNumber: 10, getBlock: 20, getLogs: 60, getTransaction: 20, getReceipt: 20, getBlockReceipts: 20, getTransfers: 120,
}

// billedBefore are costs of earlier versions of that page, from which many published tables were made.
var billedBefore = map[string]int64{
	blockNumber: 10, getBlock: 16, getLogs: 75, getTransaction: 17, getReceipt: 15, getTransfers: 150,
}

// throughputCosts returns the units that count for the limit per second, which differ for few methods.
func throughputCosts() map[string]int64 {
	costs := maps.Clone(billed)
	costs[getBlockReceipts] = 500
	return costs
}

// perBlock returns the units of a block without matches when each block is read for itself.
func perBlock(costs map[string]int64) int64 {
	return costs[blockNumber] + costs[getBlock] + costs[getLogs]
}

// perPoll returns the units of a poll without matches that finds so many blocks.
func perPoll(costs map[string]int64, blocks int64) int64 {
	return costs[blockNumber] + (blocks+maxRange-1)/maxRange*costs[getLogs]
}

// perMatch returns the units of a transaction that matches.
func perMatch(costs map[string]int64) int64 { return costs[getTransaction] + costs[getReceipt] }

// perMonth returns the units of a month in both modes.
func (c chain) perMonth(costs map[string]int64, poll time.Duration) (perBlockMode, batched int64) {
	blocks := max(1, int64(poll/c.blockTime))
	return perBlock(costs) * int64(month) / int64(c.blockTime), perPoll(costs, blocks) * int64(month) / int64(poll)
}

// writeTables writes the costs of both modes, now and at earlier prices, without matches in the months.
func writeTables(_ context.Context, o options) error {
	return tables(os.Stdout, o.poll)
}

func tables(out io.Writer, poll time.Duration) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(what string, units func(costs map[string]int64) int64) {
		fmt.Fprintf(w, "%s\t%d\t%d\n", what, units(billed), units(billedBefore))
	}
	fmt.Fprintln(w, "COMPUTE UNITS\tNOW\tEARLIER")
	row("a block in per-block mode: blockNumber, getBlockByNumber, getLogs", perBlock)
	row("a poll in batched mode: blockNumber, getLogs", func(c map[string]int64) int64 { return perPoll(c, 1) })
	row("a matched transaction in both: getTransactionByHash, getTransactionReceipt", perMatch)

	fmt.Fprintf(w, "\nA MONTH OF 30 DAYS\tBLOCK TIME\tPER BLOCK\tPOLL EVERY %v\tSAVED\tPER BLOCK, EARLIER\tPOLL, EARLIER\tSAVED\n", poll)
	for _, c := range chains {
		fmt.Fprintf(w, "%s\t%v", c.name, c.blockTime)
		for _, costs := range []map[string]int64{billed, billedBefore} {
			each, batched := c.perMonth(costs, poll)
			fmt.Fprintf(w, "\t%.1fM\t%.1fM\t%.1f%%", float64(each)/1e6, float64(batched)/1e6, 100-float64(batched)*100/float64(each))
		}
		fmt.Fprintln(w)
	}
	every := time.Duration(perPoll(billedBefore, 1) * int64(month) / published)
	fmt.Fprintf(w, "\nNOW has the costs of Alchemy's page \"Compute Unit Costs\", EARLIER those of an earlier version of it.\n")
	fmt.Fprintf(w, "Published tables that have %dM a month for batched mode are right at the earlier costs with a poll every %v, which they do not state.\n",
		int64(published/1e6), every.Round(10*time.Millisecond))
	return w.Flush()
}
