package gateway

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/internal/jsonrpc"
	"github.com/weirlimit/weir/upstream"
)

// isJSON reports whether a media type is one that clients of JSON-RPC send. Pages of foreign origins cannot send it
// unless they are asked to be allowed, so they cannot use a route that does not allow them.
func isJSON(contentType string) bool {
	if contentType == "application/json" {
		return true
	}
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && (kind == "application/json" || kind == "application/json-rpc" || kind == "application/jsonrequest")
}

// acceptJSONRPC reads the calls of a body, and returns a problem if they must not be sent.
func (x *exchange) acceptJSONRPC(body []byte) *problem {
	request, err := jsonrpc.Parse(body)
	if err != nil {
		return parseProblem(err)
	}
	x.request = request
	x.call.Body, x.call.Class, x.call.Repeatable = body, budget.ClassOf(x.caller.Context()), true
	x.call.Client, x.call.NoAnswer = upstream.ClientOf(x.caller.Context()), true
	x.call.Methods = make([]string, len(request.Calls))
	for i, c := range request.Calls {
		x.call.NoAnswer = x.call.NoAnswer && c.IsNotification
		x.call.Methods[i] = c.Method
		x.call.Repeatable = x.call.Repeatable && upstream.IsRepeatable(c.Method, x.settings.repeatable)
	}
	return x.pin()
}

func parseProblem(err error) *problem {
	p := &problem{status: http.StatusBadRequest, code: jsonrpc.CodeInvalidRequest, message: strings.TrimPrefix(err.Error(), "jsonrpc: ")}
	if e := (*jsonrpc.Error)(nil); errors.As(err, &e) {
		p.code = e.Code
	}
	return p
}

// maxError is the length of the longest error of an endpoint that is passed on. The pool has read it, and has taken
// out what is secret.
const maxError = 64 << 10

// isShortJSON reports whether a response with an error can be passed on.
func isShortJSON(reply *upstream.Reply) bool {
	return reply.ContentLength > 0 && reply.ContentLength <= maxError && reply.Header.Get("Content-Encoding") == "" && isJSON(reply.Header.Get("Content-Type"))
}

// replaceError puts an error of JSON-RPC in place of an error of an endpoint that is none, such as a page in HTML.
func (x *exchange) replaceError(reply *upstream.Reply) {
	_ = reply.Body.Close()
	p := answerProblem(reply, fmt.Sprintf("status %d", reply.StatusCode))
	reply.Header = reply.Header.Clone()
	reply.Header["Content-Type"] = mediaType
	reply.Header.Del("Content-Encoding")
	setBody(reply, p.body(x.request))
}

// completeFilters puts the ids of filters as callers get them into a response, and adds what was answered here.
func (x *exchange) completeFilters(reply *upstream.Reply) error {
	if reply.Header.Get("Content-Encoding") != "" {
		return badAnswer(reply, "a compressed body, without being asked for it")
	}
	body, err := io.ReadAll(io.LimitReader(reply.Body, maxRewritten+1))
	_ = reply.Body.Close()
	switch {
	case err != nil:
		return err
	case len(body) > maxRewritten:
		return badAnswer(reply, "more than can be read")
	}
	if x.makesFilter {
		body = x.tagFilters(reply.Alias, body)
	}
	if x.notFound != nil {
		if all, ok := jsonrpc.Append(body, x.notFound); ok {
			body, reply.StatusCode, reply.Status = all, http.StatusOK, ""
			reply.Header = reply.Header.Clone()
			reply.Header["Content-Type"] = mediaType
		}
	}
	setBody(reply, body)
	return nil
}
