//go:build linux

package ethereum

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	geth "github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"
)

// storedTopic is that of the event which the contract logs.
var storedTopic = crypto.Keccak256Hash([]byte("Stored(uint256)"))

// contractCode creates a contract that stores a number and logs it, store(uint256), and returns it, load().
func contractCode() []byte {
	runtime := "60243610603857" + // if the data are shorter than a selector and a number, go to load
		"60043580600055600052" + // store the number in slot 0 and in memory
		"7f" + hex.EncodeToString(storedTopic[:]) + "60206000a100" + // log it and stop
		"5b60005460005260206000f3" // load: return slot 0
	return common.FromHex("604480600b6000396000f3" + runtime) // copy the 0x44 bytes after the first 0x0b, and return them
}

// wallet sends the rich account's transactions.
type wallet struct {
	*testing.T
	client *ethclient.Client
	nonce  uint64
}

// send signs a transaction, sends it and returns its receipt.
func (w *wallet) send(to *common.Address, value int64, data []byte) *types.Receipt {
	w.Helper()
	key, err := crypto.HexToECDSA(richKey)
	if err != nil {
		w.Fatal(err)
	}
	tx, err := types.SignNewTx(key, types.LatestSignerForChainID(big.NewInt(chainID)), &types.DynamicFeeTx{
		ChainID: big.NewInt(chainID), Nonce: w.nonce, GasTipCap: big.NewInt(1_000_000_000), GasFeeCap: big.NewInt(20_000_000_000),
		Gas: 300_000, To: to, Value: big.NewInt(value), Data: data,
	})
	if err != nil {
		w.Fatal(err)
	}
	w.nonce++
	if err := w.client.SendTransaction(w.Context(), tx); err != nil {
		w.Fatal(err)
	}
	for {
		receipt, err := w.client.TransactionReceipt(w.Context(), tx.Hash())
		if err == nil && receipt.Status == types.ReceiptStatusSuccessful {
			return receipt
		}
		if !errors.Is(err, geth.NotFound) {
			w.Fatalf("receipt %+v, %v", receipt, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestEthclient does with go-ethereum's client what programs do.
func TestEthclient(t *testing.T) {
	t.Parallel()
	r := serve(t, "weir.yaml", 0)
	ctx := t.Context()
	client := dial(t, r)
	if id, err := client.ChainID(ctx); err != nil || id.Int64() != chainID {
		t.Fatalf("chain id %v, %v", id, err)
	}
	if n, err := client.BlockNumber(ctx); err != nil || n != 0 {
		t.Errorf("block number %d, %v", n, err)
	}
	before, err := client.BalanceAt(ctx, common.HexToAddress(poorAddress), nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &wallet{T: t, client: client}
	poor := common.HexToAddress(poorAddress)
	receipt := w.send(&poor, 12345, nil)
	after, err := client.BalanceAt(ctx, poor, nil)
	if err != nil || after.Sub(after, before).Int64() != 12345 {
		t.Errorf("the balance has grown by %v, %v", after, err)
	}
	head, err := client.HeaderByNumber(ctx, receipt.BlockNumber)
	if err != nil || head.Hash() != receipt.BlockHash {
		t.Errorf("the header is %v, %v: want that of the receipt's block", head, err)
	}
	if _, err := client.HeaderByNumber(ctx, big.NewInt(1000)); !errors.Is(err, geth.NotFound) {
		t.Errorf("a block that does not exist yet: %v", err)
	}
	if err := client.SendTransaction(ctx, types.NewTx(&types.LegacyTx{Gas: 21000, GasPrice: big.NewInt(1)})); err == nil {
		t.Error("a transaction without a signature was accepted")
	} else if e := rpc.Error(nil); !errors.As(err, &e) {
		t.Errorf("%v: want the error of the node", err)
	}

	contract := w.send(nil, 0, contractCode()).ContractAddress
	w.send(&contract, 0, append([]byte{1, 2, 3, 4}, common.LeftPadBytes([]byte{42}, 32)...))
	out, err := client.CallContract(ctx, geth.CallMsg{To: &contract, Data: []byte{5, 6, 7, 8}}, nil)
	if err != nil || new(big.Int).SetBytes(out).Int64() != 42 {
		t.Errorf("the contract returns %x, %v", out, err)
	}
	logs, err := client.FilterLogs(ctx, geth.FilterQuery{Addresses: []common.Address{contract}, Topics: [][]common.Hash{{storedTopic}}})
	if err != nil || len(logs) != 1 || new(big.Int).SetBytes(logs[0].Data).Int64() != 42 {
		t.Errorf("logs %+v, %v", logs, err)
	}
	if n := len(r.calls("eth_sendRawTransaction")); n != 4 { // one of them was refused by the node
		t.Errorf("transactions were sent %d times, want 4", n)
	}
	for i := 0; i < 100 && r.used() < 2; i++ { // which endpoint is asked is a matter of chance
		if _, err := client.BlockNumber(ctx); err != nil {
			t.Error(err)
		}
	}
	if n := r.used(); n != 2 {
		t.Errorf("%d of two endpoints were used", n)
	}
}

// TestEthclientBatch sends calls in batches: the answers are in order, and errors are those of their calls.
func TestEthclientBatch(t *testing.T) {
	t.Parallel()
	r := serve(t, "weir.yaml", 0)
	client := dial(t, r).Client()
	const n = 40
	var batch []rpc.BatchElem
	var heads [n]map[string]any
	for i := range n {
		batch = append(batch, rpc.BatchElem{Method: "eth_getBlockByNumber", Args: []any{hexutil.EncodeUint64(uint64(i % 2)), false}, Result: &heads[i]})
	}
	var id hexutil.Uint64
	batch[5] = rpc.BatchElem{Method: "eth_chainId", Result: &id}
	batch[7] = rpc.BatchElem{Method: "eth_noSuchMethod", Result: new(any)}
	if err := client.BatchCallContext(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	for i, e := range batch {
		switch {
		case i == 5 && (e.Error != nil || id != chainID):
			t.Errorf("chain id %d, %v", id, e.Error)
		case i == 7 && e.Error == nil:
			t.Error("a method that does not exist was answered")
		case i != 5 && i != 7 && (e.Error != nil || i%2 == 0 && heads[i]["number"] != "0x0" || i%2 == 1 && heads[i] != nil):
			t.Errorf("call %d: %v, %v", i, heads[i]["number"], e.Error)
		}
	}
	for _, s := range r.calls("eth_getBlockByNumber") {
		if !s.batch {
			t.Fatalf("%s was sent alone", s.method)
		}
	}
}

// TestEthclientFilters polls filters, each of which only one endpoint knows.
func TestEthclientFilters(t *testing.T) {
	t.Parallel()
	r := serve(t, "weir.yaml", 0)
	client := dial(t, r)
	w := &wallet{T: t, client: client}
	contract := w.send(nil, 0, contractCode()).ContractAddress
	ctx, filters := t.Context(), make([]string, 6)
	for i := range filters {
		query := map[string]any{"address": contract, "topics": []any{storedTopic}}
		if err := client.Client().CallContext(ctx, &filters[i], "eth_newFilter", query); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 3 {
		w.send(&contract, 0, append([]byte{1, 2, 3, 4}, common.LeftPadBytes([]byte{byte(round)}, 32)...))
		for _, id := range filters {
			var logs []types.Log
			if err := client.Client().CallContext(ctx, &logs, "eth_getFilterChanges", id); err != nil || len(logs) != 1 || logs[0].Data[31] != byte(round) {
				t.Errorf("filter %s in round %d: %+v, %v", id, round, logs, err)
			}
		}
	}
	var removed bool
	if err := client.Client().CallContext(ctx, &removed, "eth_uninstallFilter", filters[0]); err != nil || !removed {
		t.Errorf("removed: %v, %v", removed, err)
	}
	r.wantPinned(t)
}

// TestEthclientRefused shows what a client without retries gets from a route that is at its limit.
func TestEthclientRefused(t *testing.T) {
	t.Parallel()
	r := serve(t, filepath.Join("testdata", "limited.yaml"), 0)
	client := dial(t, r)
	for i := range 5 {
		_, err := client.BlockNumber(t.Context())
		refused := rpc.HTTPError{}
		switch {
		case i < 3 && err != nil:
			t.Errorf("call %d: %v", i, err)
		case i >= 3 && (!errors.As(err, &refused) || refused.StatusCode != http.StatusTooManyRequests || !strings.Contains(string(refused.Body), "-32005")):
			t.Errorf("call %d: %v, want the status 429", i, err)
		}
	}
	if err := client.Client().BatchCallContext(t.Context(), []rpc.BatchElem{{Method: "eth_chainId"}, {Method: "eth_chainId"}}); err == nil {
		t.Error("a batch was served beyond the limit")
	}
	if n := len(r.calls("")); n != 3 {
		t.Errorf("%d calls were sent, want 3", n)
	}
}

func dial(t *testing.T, r *route) *ethclient.Client {
	t.Helper()
	own := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	client, err := rpc.DialOptions(context.Background(), r.URL, rpc.WithHTTPClient(own))
	if err != nil {
		t.Fatal(fmt.Errorf("%s: %w", r.URL, err))
	}
	t.Cleanup(client.Close)
	return ethclient.NewClient(client)
}
