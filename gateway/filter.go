package gateway

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/weirlimit/weir/internal/jsonrpc"
	"github.com/weirlimit/weir/upstream"
)

// A filter of JSON-RPC exists at the endpoint that has made it. So that calls find it, its id is another one for
// callers than for the endpoint:
//
//	0x | tag of the endpoint (8 digits) | digits of the endpoint's id
//
// The tag follows from the names of the pool and the endpoint alone, so any process of the same configuration finds
// the endpoint, also after a restart. Its first digit is never 0: some clients read ids as numbers. Ids that are not
// hexadecimal pass unchanged both ways, and calls with them may go to any endpoint.
type filters struct {
	tags    map[string]string // alias -> tag
	aliases map[string]string // tag -> alias
}

func newFilters(c upstream.Config) filters {
	f := filters{map[string]string{}, map[string]string{}}
	for _, e := range c.Endpoints {
		tag := filterTag(c.Name, e.Alias)
		f.tags[e.Alias], f.aliases[tag] = tag, e.Alias
	}
	return f
}

// filterTag returns the 8 digits that stand for an endpoint.
func filterTag(pool, alias string) string {
	sum := sha256.Sum256([]byte(pool + "/" + alias))
	return fmt.Sprintf("%08x", binary.BigEndian.Uint32(sum[:])|1<<31)
}

// tagged returns an endpoint's id of a filter as callers get it, and false if it is not hexadecimal.
func (f *filters) tagged(alias, id string) (string, bool) {
	digits, ok := hexDigits(id)
	return "0x" + f.tags[alias] + digits, ok
}

// find returns the endpoint that has a filter, and its id there. The alias is "" if there is none.
func (f *filters) find(id string) (alias, own string) {
	digits, ok := hexDigits(id)
	if !ok || len(digits) <= 8 {
		return "", ""
	}
	return f.aliases[strings.ToLower(digits[:8])], "0x" + digits[8:]
}

// hexDigits returns the digits of a hexadecimal number, of which there is at least one.
func hexDigits(id string) (digits string, ok bool) {
	digits, ok = strings.CutPrefix(id, "0x")
	return digits, ok && digits != "" && strings.Trim(digits, "0123456789abcdefABCDEF") == ""
}

func makesFilter(method string) bool {
	return method == "eth_newFilter" || method == "eth_newBlockFilter" || method == "eth_newPendingTransactionFilter"
}

func usesFilter(method string) bool {
	return method == "eth_getFilterChanges" || method == "eth_getFilterLogs" || method == "eth_uninstallFilter"
}

// codeServer is the code that servers of JSON-RPC use for what goes wrong there, such as an unknown filter.
const codeServer = -32000

// codeParams is the code of parameters that cannot be used.
const codeParams = -32602

// notFound is what servers answer if they do not know a filter.
var notFound = problem{status: http.StatusOK, code: codeServer, message: "filter not found"}

// pin puts the endpoints' own ids of filters into a request, and says to which endpoint it has to go. Calls with ids that no
// endpoint has given are answered here, and so are those with ids of an endpoint that does not take them: anybody can make up
// such an id, but not have calls sent to where they would not go otherwise.
func (x *exchange) pin() *problem {
	makes, uses := false, false
	for _, c := range x.request.Calls {
		makes, uses = makes || makesFilter(c.Method), uses || usesFilter(c.Method)
	}
	if x.makesFilter = makes; makes && x.request.Batch {
		if p := x.checkIDs(); p != nil {
			return p
		}
	}
	if !uses {
		return nil
	}
	var edits []jsonrpc.Edit
	var lost []int
	for i, id := range jsonrpc.FirstParams(x.call.Body) {
		if _, isHex := hexDigits(id.Text); !usesFilter(x.request.Calls[i].Method) || !id.IsString || !isHex {
			continue
		}
		alias, own := x.settings.filters.find(id.Text)
		switch {
		case alias == "" || !x.route.pool.Takes(&upstream.Call{Pinned: alias, Methods: []string{x.request.Calls[i].Method}}):
			lost = append(lost, i)
			continue
		case x.call.Pinned != "" && x.call.Pinned != alias:
			return &problem{
				status: http.StatusBadRequest, code: codeParams,
				message: fmt.Sprintf("the batch uses filters of %s and of %s: send a batch for each", x.call.Pinned, alias),
			}
		}
		x.call.Pinned = alias
		edits = append(edits, jsonrpc.Edit{Value: id, Text: `"` + own + `"`})
	}
	if len(edits) > 0 {
		x.call.Body = jsonrpc.Apply(x.call.Body, edits)
	}
	if p := x.leaveOut(lost); p != nil {
		return p
	}
	if x.call.Pinned != "" && !x.route.pool.Takes(&x.call) {
		return &problem{
			status: http.StatusBadRequest, code: codeParams,
			message: fmt.Sprintf("the batch uses a filter of %s, which does not take all of its other calls: send them without it", x.call.Pinned),
		}
	}
	return nil
}

// leaveOut takes calls out of a request whose filters do not exist. If none is left it returns the answer.
func (x *exchange) leaveOut(lost []int) *problem {
	switch len(lost) {
	case 0:
		return nil
	case len(x.request.Calls):
		return &notFound
	}
	var members, methods []string
	x.call.NoAnswer = true
	for i, member := range jsonrpc.Members(x.call.Body) {
		c := x.request.Calls[i]
		switch {
		case !slices.Contains(lost, i):
			members, methods = append(members, member.Raw), append(methods, c.Method)
			x.call.NoAnswer = x.call.NoAnswer && c.IsNotification
		case !c.IsNotification:
			x.notFound = append(x.notFound, string(object("", []string{c.ID}, notFound.tail())))
		}
	}
	x.call.Body, x.call.Methods = []byte("["+strings.Join(members, ",")+"]"), methods
	return nil
}

// checkIDs returns a problem if the response of a call that makes a filter could be that of another call.
func (x *exchange) checkIDs() *problem {
	filters := x.filterIDs()
	for _, c := range x.request.Calls {
		if !makesFilter(c.Method) && !c.IsNotification && filters[sameID(c.ID)] {
			return &problem{
				status: http.StatusBadRequest, code: jsonrpc.CodeInvalidRequest,
				message: "the batch has a call that makes a filter and another with the same id: give each an id of its own",
			}
		}
	}
	return nil
}

// filterIDs returns the ids of the calls that make filters.
func (x *exchange) filterIDs() map[string]bool {
	ids := map[string]bool{}
	for _, c := range x.request.Calls {
		if makesFilter(c.Method) && !c.IsNotification {
			ids[sameID(c.ID)] = true
		}
	}
	return ids
}

// sameID returns the id of a call, as it is written, in a form that equals that of the response's, which may be written in
// another way.
func sameID(raw string) string {
	var v any
	if json.Unmarshal([]byte(raw), &v) != nil {
		return raw
	}
	return fmt.Sprintf("%T %v", v, v)
}

// tagFilters puts the ids of new filters as callers get them into a response. A body that is no response of JSON-RPC stays
// as it is.
func (x *exchange) tagFilters(alias string, body []byte) []byte {
	responses, err := jsonrpc.Responses(body)
	if err != nil {
		return body
	}
	ids := x.filterIDs()
	var edits []jsonrpc.Edit
	for _, r := range responses {
		if !r.Result.IsString || x.request.Batch && !ids[sameID(r.ID.Raw)] {
			continue
		}
		if tagged, ok := x.settings.filters.tagged(alias, r.Result.Text); ok {
			edits = append(edits, jsonrpc.Edit{Value: r.Result, Text: `"` + tagged + `"`})
		}
	}
	return jsonrpc.Apply(body, edits)
}
