package target

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
)

// rpcSender sends JSON-RPC requests, and looks at the answers.
type rpcSender struct {
	http   *httpSender
	answer bytes.Buffer // kept, to be filled again
}

func (s *rpcSender) send(ctx context.Context) Result {
	resp, err := s.http.roundTrip(ctx)
	if err != nil {
		return failed(err)
	}
	defer resp.Body.Close()
	if err := s.read(resp.Body, maxAnswer); err != nil {
		return failed(err)
	}
	r := judge(resp.StatusCode, s.answer.Bytes(), s.http.vars.seq)
	r.Bytes = s.answer.Len()
	return r
}

// keepAnswer is how large a buffer is kept: one large answer should not cost its
// size for every caller and for ever.
const keepAnswer = 1 << 20

// read fills answer with a body of at most so many bytes.
func (s *rpcSender) read(body io.Reader, most int64) error {
	if s.answer.Cap() > keepAnswer {
		s.answer = bytes.Buffer{}
	}
	s.answer.Reset()
	n, err := s.answer.ReadFrom(io.LimitReader(body, most+1))
	if err == nil && n > most {
		return errTooLarge
	}
	return err
}

// An rpcReply is what JSON-RPC answers.
type rpcReply struct {
	ID     json.RawMessage `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code *int64 `json:"code"`
	} `json:"error"`
}

// judge says what an answer to request id means. Limiters and gateways answer
// with a status of their own and no JSON-RPC, or with both: the error of JSON-RPC
// says more.
func judge(status int, body []byte, id int64) Result {
	var reply rpcReply
	err := json.Unmarshal(body, &reply)
	switch {
	case err == nil && reply.isError(id):
		return Result{Code: "error " + strconv.FormatInt(*reply.Error.Code, 10)}
	case status < 200 || status > 299:
		return Result{Code: strconv.Itoa(status)}
	case err == nil && reply.isResult(id):
		return Result{OK: true, Code: "result"}
	case err != nil:
		return failed(fmt.Errorf("%w: it is no JSON-RPC", errBadReply))
	}
	return failed(fmt.Errorf("%w: it has another id, or neither a result nor an error", errBadReply))
}

// isError accepts an id of null, too: so do servers answer who could not read it.
func (r *rpcReply) isError(id int64) bool {
	return r.Error != nil && r.Error.Code != nil && (r.hasID(id) || string(r.ID) == "null")
}

// isResult accepts a result of null, which is one.
func (r *rpcReply) isResult(id int64) bool {
	return r.Error == nil && r.Result != nil && r.hasID(id)
}

func (r *rpcReply) hasID(id int64) bool { return string(r.ID) == strconv.FormatInt(id, 10) }
