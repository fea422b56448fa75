package mockrpc

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
)

// callError is an error of JSON-RPC, with the members that Infura adds.
type callError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Event   int    `json:"event,omitempty"`
	Details string `json:"details,omitempty"`
}

// The codes of JSON-RPC, and the one of Ethereum's nodes for anything else.
const (
	codeMethod = -32601
	codeParams = -32602
	codeServer = -32000
)

func badParams(format string, args ...any) *callError {
	return &callError{Code: codeParams, Message: fmt.Sprintf(format, args...)}
}

// params are the parameters of a call, by position.
type params []json.RawMessage

// text returns a parameter that is a string, "" if it is none.
func (p params) text(i int) (s string) {
	if i < len(p) {
		_ = json.Unmarshal(p[i], &s)
	}
	return s
}

// method executes a call. It requires the provider's lock.
type method func(s *state, v view, p params) (result any, err *callError)

// methods are those that the provider knows.
var methods = map[string]method{
	"eth_chainId":               func(_ *state, v view, _ params) (any, *callError) { return hexNumber(v.chainID), nil },
	"eth_blockNumber":           func(_ *state, v view, _ params) (any, *callError) { return hexNumber(v.head), nil },
	"net_version":               func(_ *state, v view, _ params) (any, *callError) { return strconv.FormatUint(v.chainID, 10), nil },
	"web3_clientVersion":        func(*state, view, params) (any, *callError) { return "weir-mock/1", nil },
	"eth_call":                  func(*state, view, params) (any, *callError) { return zeroWord, nil },
	"eth_getBalance":            func(*state, view, params) (any, *callError) { return "0xde0b6b3a7640000", nil }, // 1 ether
	"eth_getBlockByNumber":      getBlock,
	"eth_getLogs":               getLogs,
	"eth_getTransactionReceipt": getReceipt,
	"eth_sendRawTransaction":    sendRaw,
	"eth_newFilter":             func(s *state, v view, _ params) (any, *callError) { return s.newFilter(v, true) },
	"eth_newBlockFilter":        func(s *state, v view, _ params) (any, *callError) { return s.newFilter(v, false) },
	"eth_getFilterChanges":      func(s *state, v view, p params) (any, *callError) { return s.changes(v, p.text(0)) },
	"eth_uninstallFilter":       func(s *state, _ view, p params) (any, *callError) { return s.uninstall(p.text(0)), nil },
}

// execute answers a call.
func (s *state) execute(v view, name string, p params) (any, *callError) {
	run, known := methods[name]
	if !known {
		return nil, &callError{Code: codeMethod, Message: fmt.Sprintf("the method %s does not exist/is not available", shorten(name))}
	}
	return run(s, v, p)
}

func getBlock(_ *state, v view, p params) (any, *callError) {
	n, err := v.number(p.text(0))
	if err != nil {
		return nil, badParams("%v", err)
	}
	full := len(p) > 1 && string(p[1]) == "true"
	return v.block(n, full), nil
}

func getLogs(_ *state, v view, p params) (any, *callError) {
	var filter struct{ FromBlock, ToBlock string }
	if len(p) == 0 || json.Unmarshal(p[0], &filter) != nil {
		return nil, badParams("the first parameter must be a filter")
	}
	from, err1 := v.number(filter.FromBlock)
	to, err2 := v.number(filter.ToBlock)
	switch {
	case err1 != nil:
		return nil, badParams("fromBlock: %v", err1)
	case err2 != nil:
		return nil, badParams("toBlock: %v", err2)
	case from > to || to-from >= maxBlocks:
		return nil, badParams("from block %d to %d: a range has 1 to %d blocks", from, to, maxBlocks)
	case from > v.head:
		return []any{}, nil
	}
	return v.logs(from, to), nil
}

func getReceipt(s *state, v view, p params) (any, *callError) {
	hash := p.text(0)
	if sent := s.sent[hash]; sent != nil && sent.block <= v.head {
		return v.receipt(sent.block, hash), nil
	}
	if block, found := v.blockOf(hash); found {
		return v.receipt(block, hash), nil
	}
	return nil, nil // unknown, or not yet in a block
}

// transaction is one that was sent. It is in the block after the newest.
type transaction struct {
	block      uint64
	executions int64
}

// maxSent is how many transactions are remembered.
const maxSent = 100_000

// sendRaw counts how often a transaction was executed: a client that sends one twice after a lost response
// has made a mistake which a real node would hide.
func sendRaw(s *state, v view, p params) (any, *callError) {
	raw := p.text(0)
	if len(raw) < 4 || raw[:2] != "0x" {
		return nil, badParams("the first parameter must be a transaction, such as 0x02f8…")
	}
	hash := fmt.Sprintf("0x%x", sha256.Sum256([]byte(raw)))
	sent := s.sent[hash]
	if sent == nil {
		if len(s.sent) == maxSent {
			return nil, &callError{Code: codeServer, Message: "txpool is full"}
		}
		sent = &transaction{block: v.head + 1}
		s.sent[hash] = sent
	}
	sent.executions++
	return hash, nil
}

// shorten cuts a text that came from outside.
func shorten(text string) string { return text[:min(len(text), 100)] }
