package mockrpc

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	maxBlock   = 1 << 53 // so that sums and times of blocks do not overflow
	maxBlocks  = 2000    // that eth_getLogs reads
	logEvery   = 10      // every tenth block has a transaction with a log
	finalDepth = 64      // blocks that are not final
	safeDepth  = 32
	maxAge     = 50 * 365 * 24 * time.Hour // of a block, before the first one
)

// view is the chain at an instant, as a request sees it.
type view struct {
	chainID uint64
	head    uint64
	first   uint64
	began   time.Time     // when the first block was made
	step    time.Duration // between two blocks
}

// timeOf returns when a block was made. Very old ones are all of one age.
func (v view) timeOf(block uint64) time.Time {
	steps := max(int64(block)-int64(v.first), -int64(maxAge/v.step)) // numbers are at most a little above maxBlock
	return v.began.Add(time.Duration(steps) * v.step)
}

// The hash of an empty list of uncles, and of an empty list of transactions.
const (
	emptyUncles = "0x1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347"
	emptyRoot   = "0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421"
)

const (
	someAddress  = "0x5fbdb2315678afecb367f032d93f642f64180aa3"
	otherAddress = "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266"
	someTopic    = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef" // of a token's transfer
)

var (
	emptyBloom = "0x" + strings.Repeat("0", 512)
	zeroWord   = "0x" + strings.Repeat("0", 64)
)

func hexNumber(n uint64) string { return "0x" + strconv.FormatUint(n, 16) }

// hash invents the hash of what has a name and a number.
func (v view) hash(name string, n uint64) string {
	return fmt.Sprintf("0x%x", sha256.Sum256(fmt.Appendf(nil, "%s %d of chain %d", name, n, v.chainID)))
}

// transactionHash is the hash of a block's transaction. It ends with the number of the block, so that
// transactions are found without being stored.
func (v view) transactionHash(block uint64) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "transaction %d of chain %d", block, v.chainID))
	binary.BigEndian.PutUint64(sum[24:], block)
	return fmt.Sprintf("0x%x", sum)
}

// blockOf returns the block of a transaction that transactionHash has made.
func (v view) blockOf(hash string) (block uint64, found bool) {
	if len(hash) != 66 {
		return 0, false
	}
	n, err := strconv.ParseUint(hash[50:], 16, 64)
	return n, err == nil && n <= v.head && n%logEvery == 0 && strings.EqualFold(v.transactionHash(n), hash)
}

// number returns the block that a parameter names: a number such as 0x1b4, or a tag.
func (v view) number(tag string) (uint64, error) {
	switch tag {
	case "latest", "pending", "":
		return v.head, nil
	case "safe":
		return v.head - min(v.head, safeDepth), nil
	case "finalized":
		return v.head - min(v.head, finalDepth), nil
	case "earliest":
		return 0, nil
	}
	digits, hex := strings.CutPrefix(tag, "0x")
	n, err := strconv.ParseUint(digits, 16, 64)
	if !hex || err != nil {
		return 0, fmt.Errorf("%q is no block: it must be a number such as 0x1b4, or latest, safe, finalized, earliest or pending", shorten(tag))
	}
	return n, nil
}

// block returns a block, nil if there is none yet.
func (v view) block(n uint64, full bool) any {
	if n > v.head {
		return nil
	}
	parent := zeroWord
	if n > 0 {
		parent = v.hash("block", n-1)
	}
	root, transactions := emptyRoot, []any{}
	if n%logEvery == 0 {
		root, transactions = v.hash("root", n), []any{v.transactionHash(n)}
		if full {
			transactions[0] = v.transaction(n)
		}
	}
	return map[string]any{
		"number": hexNumber(n), "hash": v.hash("block", n), "parentHash": parent, "sha3Uncles": emptyUncles, "miner": otherAddress,
		"stateRoot": v.hash("state", n), "transactionsRoot": root, "receiptsRoot": root, "logsBloom": emptyBloom,
		"difficulty": "0x0", "gasLimit": "0x1c9c380", "gasUsed": "0x5208", "timestamp": hexNumber(uint64(max(0, v.timeOf(n).Unix()))), "extraData": "0x",
		"mixHash": zeroWord, "nonce": "0x0000000000000000", "baseFeePerGas": "0x3b9aca00", "size": "0x220",
		"transactions": transactions, "uncles": []any{},
	}
}

func (v view) transaction(block uint64) any {
	return map[string]any{
		"hash": v.transactionHash(block), "blockHash": v.hash("block", block), "blockNumber": hexNumber(block), "transactionIndex": "0x0",
		"type": "0x0", "chainId": hexNumber(v.chainID), "nonce": hexNumber(block), "from": otherAddress, "to": someAddress, "value": "0x0",
		"gas": "0x5208", "gasPrice": "0x3b9aca00", "input": "0x", "v": "0x1b", "r": "0x1", "s": "0x1",
	}
}

// logs returns the logs of a range of blocks, whatever addresses and topics are asked for.
func (v view) logs(from, to uint64) []any {
	list := []any{}
	for n := (from + logEvery - 1) / logEvery * logEvery; n <= min(to, v.head); n += logEvery {
		list = append(list, v.log(n, v.transactionHash(n)))
	}
	return list
}

func (v view) log(block uint64, transaction string) any {
	return map[string]any{
		"address": someAddress, "topics": []string{someTopic}, "data": zeroWord, "blockNumber": hexNumber(block), "blockHash": v.hash("block", block),
		"transactionHash": transaction, "transactionIndex": "0x0", "logIndex": "0x0", "removed": false,
	}
}

func (v view) receipt(block uint64, transaction string) any {
	return map[string]any{
		"transactionHash": transaction, "transactionIndex": "0x0", "blockNumber": hexNumber(block), "blockHash": v.hash("block", block),
		"from": otherAddress, "to": someAddress, "contractAddress": nil, "status": "0x1", "type": "0x0", "cumulativeGasUsed": "0x5208", "gasUsed": "0x5208",
		"effectiveGasPrice": "0x3b9aca00", "logsBloom": emptyBloom, "logs": []any{v.log(block, transaction)},
	}
}
