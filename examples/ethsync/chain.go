package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The methods of the provider.
const (
	blockNumber      = "eth_blockNumber"
	getBlock         = "eth_getBlockByNumber"
	getLogs          = "eth_getLogs"
	getTransaction   = "eth_getTransactionByHash"
	getReceipt       = "eth_getTransactionReceipt"
	getBlockReceipts = "eth_getBlockReceipts"
	getTransfers     = "alchemy_getAssetTransfers"
)

const (
	firstHead  = 20_000_000 // the newest block when the provider starts
	maxRange   = 2000       // blocks that a call may read
	matchEvery = 5          // every fifth block has a log that the workers look for
)

// chain is a chain with one transaction in each block. The number of a block is the hash of its
// transaction too, so that nothing needs to be stored.
type chain struct{ blockTime time.Duration }

// head returns the newest block at an instant since the start.
func (c chain) head(now time.Duration) int64 { return firstHead + int64(now/c.blockTime) }

// result answers a call while head is the newest block. Unknown blocks are null.
func result(c call, head int64) (string, error) {
	if c.Method == blockNumber {
		return fmt.Sprintf(`"0x%x"`, head), nil
	}
	from, to, err := c.blocks()
	switch {
	case err != nil:
		return "", err
	case c.Method == getLogs || c.Method == getTransfers:
		return logs(from, min(to, head)), nil
	case from > head:
		return "null", nil
	case c.Method == getBlock:
		return fmt.Sprintf(`{"number":"0x%x","transactions":["0x%064[1]x"]}`, from), nil
	case c.Method == getBlockReceipts:
		return "[" + transaction(from) + "]", nil
	default:
		return transaction(from), nil
	}
}

// blocks returns the range of the first parameter, which is a filter, a number or a hash.
func (c call) blocks() (from, to int64, err error) {
	var filter struct{ FromBlock, ToBlock string }
	if len(c.Params) > 0 && json.Unmarshal(c.Params[0], &filter) != nil {
		_ = json.Unmarshal(c.Params[0], &filter.FromBlock) // if it is no text, ParseInt fails
		filter.ToBlock = filter.FromBlock
	}
	from, err1 := strconv.ParseInt(filter.FromBlock, 0, 64)
	to, err2 := strconv.ParseInt(filter.ToBlock, 0, 64)
	if err1 != nil || err2 != nil || from < 0 || to < from || to-from >= maxRange {
		return 0, 0, fmt.Errorf("%s from %q to %q: these must be numbers such as 0x1b4, and at most %d blocks",
			c.Method, filter.FromBlock, filter.ToBlock, maxRange)
	}
	return from, to, nil
}

// logs returns the logs that match in a range.
func logs(from, to int64) string {
	var list []string
	for n := (from + matchEvery - 1) / matchEvery * matchEvery; n <= to; n += matchEvery {
		list = append(list, transaction(n))
	}
	return "[" + strings.Join(list, ",") + "]"
}

func transaction(n int64) string {
	return fmt.Sprintf(`{"blockNumber":"0x%x","transactionHash":"0x%064[1]x"}`, n)
}
