package client

import (
	"context"
	"errors"
	"fmt"
	"net"

	"connectrpc.com/connect"

	"github.com/weirlimit/weir"
)

// An AnswerError is an error response of the daemon. Nothing was charged.
type AnswerError struct {
	Address string
	Problem string // the daemon's message
	Access  bool   // authentication failed, or the client may not use this policy: see Config.Token
	Missing bool   // the daemon has no such policy

	caller bool // the error is about the caller, and independent of the request
}

func (e *AnswerError) Error() string { return fmt.Sprintf("client: %s: %s", e.Address, e.Problem) }

// Is reports that the error is a weir.ErrInvalid: the daemon is available and the request is
// invalid, so package tiered does not open its breaker.
func (e *AnswerError) Is(target error) bool { return target == weir.ErrInvalid }

// failed converts the error of a call.
func (c *Client) failed(err error) error {
	problem, _ := errors.AsType[*connect.Error](err)
	if problem == nil {
		return c.unknown(err)
	}
	answer := AnswerError{Address: c.address, Problem: problem.Message()}
	switch {
	case !connect.IsWireError(err):
		return c.unsent(err)
	case problem.Code() == connect.CodeNotFound:
		answer.Missing = true
	case problem.Code() == connect.CodeUnauthenticated:
		answer.Access, answer.caller = true, true
	case problem.Code() == connect.CodePermissionDenied:
		answer.Access = true
	case problem.Code() == connect.CodeResourceExhausted: // too many wrong tokens, or too long a message
		answer.caller = problem.Meta().Get("Retry-After") != ""
	case problem.Code() != connect.CodeInvalidArgument:
		return c.unknown(err)
	}
	return &answer
}

// unsent converts the error of a call without a response. If no connection could be made, the call
// was certainly not charged. A daemon that wants a client's certificate refuses the connection,
// under TLS 1.3, only after the client could send: that outcome stays unknown.
func (c *Client) unsent(err error) error {
	cause := notConnected(err)
	if cause != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("client: %w: %s cannot be reached: %w", weir.ErrUnavailable, c.address, cause)
	}
	return c.unknown(err)
}

// notConnected returns why no connection was made, nil if there may have been one.
func notConnected(err error) error {
	if failed, ok := errors.AsType[*handshakeError](err); ok {
		return failed.error
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return op
	}
	return nil
}

// A handshakeError is why no TLS connection was made.
type handshakeError struct{ error }

func (e *handshakeError) Unwrap() error { return e.error }

// unknown is the error of a call that may have been charged.
func (c *Client) unknown(err error) error {
	return fmt.Errorf("client: %s: %w: %w", c.address, weir.ErrUnknown, err)
}

// nothingCharged reports whether a call with this error has certainly charged nothing.
func nothingCharged(err error) bool { return !errors.Is(err, weir.ErrUnknown) }
