package client

import (
	"context"
	"errors"
	"fmt"
	"net"

	"connectrpc.com/connect"

	"github.com/weirlimit/weir"
)

// An AnswerError is what a daemon answered instead of a decision. Nothing was charged.
type AnswerError struct {
	Address string
	Problem string // what the daemon says is wrong, and what to do
	Access  bool   // we may not ask, or not for this policy: see Config.Token
	Missing bool   // it has no such policy

	caller bool // it is about who asks, whatever for
}

func (e *AnswerError) Error() string { return fmt.Sprintf("client: %s: %s", e.Address, e.Problem) }

// Is says that the daemon is well and it is the question that does not fit, so that package
// tiered does not give it up for that.
func (e *AnswerError) Is(target error) bool { return target == weir.ErrInvalid }

// failed says what became of a call that was not answered with a decision.
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

// unsent says what became of a call that the daemon did not answer at all. If there was no
// connection it did not see it either.
func (c *Client) unsent(err error) error {
	dial, ok := errors.AsType[*net.OpError](err)
	if ok && dial.Op == "dial" && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("client: %w: %s cannot be reached: %w", weir.ErrUnavailable, c.address, dial)
	}
	return c.unknown(err)
}

// unknown is the error of a call that may have been charged.
func (c *Client) unknown(err error) error {
	return fmt.Errorf("client: %s: %w: %w", c.address, weir.ErrUnknown, err)
}

// nothingCharged says whether, after an error, all is as before.
func nothingCharged(err error) bool { return !errors.Is(err, weir.ErrUnknown) }
