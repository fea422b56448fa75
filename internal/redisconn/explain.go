package redisconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/weirlimit/weir/secret"
)

// wrap says where and why something failed at the start. ctx is the caller's.
func (c Config) wrap(ctx context.Context, addr string, err error) error {
	return hide(fmt.Errorf("redisconn: %s: %w", addr, c.explain(ctx, err)), c.Password, c.SentinelPassword)
}

// explain adds the likely cause of an error, for the operator.
func (c Config) explain(ctx context.Context, err error) error {
	var (
		noDial  *dialError
		refused *ReplyError
	)
	text := err.Error()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("cancelled: %w", context.Cause(ctx))
	case errors.As(err, &noDial) && isTimeout(err):
		return fmt.Errorf("no connection within %v: %w", c.DialTimeout, noDial.reason())
	case errors.As(err, &noDial):
		return noDial.reason()
	case strings.HasPrefix(text, "WRONGPASS"):
		return fmt.Errorf("wrong password for user %q (%w)", c.userName(), err)
	case strings.HasPrefix(text, "NOAUTH"):
		return fmt.Errorf("it requires a password, and none is set (%w)", err)
	case strings.HasPrefix(text, "NOPERM"):
		text, _, _ = strings.Cut(text, "\n") // rueidis adds advice for its own users
		return fmt.Errorf("user %q lacks a permission (%s)", c.userName(), text)
	case strings.Contains(text, "DB index"), strings.Contains(text, "SELECT is not allowed"):
		return fmt.Errorf("database %d: %w", c.DB, err)
	case isTimeout(err):
		return fmt.Errorf("connected, but no reply arrived in time: %w", err)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("it closed the connection without a reply: is it Redis, and does it require TLS? (%w)", err)
	case errors.As(err, &refused):
		return fmt.Errorf("it does not speak the protocol of Redis as weir expects it (%w)", err)
	}
	return err
}

func (c Config) userName() string {
	if c.Username == "" {
		return "default"
	}
	return c.Username
}

func isTimeout(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

// hide replaces passwords in an error. Redis before 6, for example, complains of HELLO
// with all its arguments.
func hide(err error, passwords ...secret.Secret) error {
	text := err.Error()
	for _, p := range passwords {
		if !p.IsZero() {
			text = strings.ReplaceAll(text, p.Reveal(), secret.Mask)
		}
	}
	if text == err.Error() {
		return err
	}
	return errors.New(text) // not wrapped: err has the password in it
}
