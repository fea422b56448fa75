package target

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
)

// A Result is what became of one call.
type Result struct {
	// OK says that the target carried out the operation: an HTTP status of 2xx or 3xx,
	// gRPC's OK, a JSON-RPC reply without an error, a Redis reply that is not an error.
	OK bool

	// Code is for counting. If the target answered, it is "200", "OK",
	// "ResourceExhausted", "result", "error -32005", "reply", "WRONGTYPE". If not, it
	// is one of a few words: "timeout", "canceled" (the ctx ended), "refused", "reset",
	// "closed", "unreachable", "unavailable", "dns", "tls", "no ports", "no files" (the two are this
	// machine's limits), "too large", "bad reply", "bad request", "error".
	Code string

	// Bytes is the size of the answer: of an HTTP body, of a gRPC message, of a Redis
	// reply with its framing.
	Bytes int

	// Err is nil if the target gave an answer that is whole and makes sense, whatever
	// it says.
	Err error
}

// Codes of calls without an answer. The rest is in the table of systemCodes.
const (
	codeTimeout     = "timeout"
	codeCanceled    = "canceled"
	codeReset       = "reset"
	codeClosed      = "closed"
	codeTooLarge    = "too large"
	codeBadReply    = "bad reply"
	codeBadRequest  = "bad request"
	codeUnavailable = "unavailable"
	codeError       = "error"
)

var (
	errTooLarge   = errors.New("target: the answer is larger than 64 MiB")
	errBadReply   = errors.New("target: the answer makes no sense")
	errBadRequest = errors.New("target: the request cannot be made")
)

// failed is the result of a call without an answer.
func failed(err error) Result { return Result{Code: codeOf(err), Err: err} }

var systemCodes = []struct {
	errno syscall.Errno
	code  string
}{
	{syscall.ECONNREFUSED, "refused"},
	{syscall.ECONNRESET, codeReset},
	{syscall.EPIPE, codeReset},
	{syscall.EHOSTUNREACH, "unreachable"},
	{syscall.ENETUNREACH, "unreachable"},
	{syscall.EADDRNOTAVAIL, "no ports"},
	{syscall.EMFILE, "no files"},
	{syscall.ENFILE, "no files"},
}

// codeOf returns the code of an error.
func codeOf(err error) string {
	for _, s := range systemCodes {
		if errors.Is(err, s.errno) {
			return s.code
		}
	}
	switch {
	case errors.Is(err, errTooLarge):
		return codeTooLarge
	case errors.Is(err, errBadReply):
		return codeBadReply
	case errors.Is(err, errBadRequest):
		return codeBadRequest
	case errors.Is(err, context.Canceled):
		return codeCanceled
	case isTimeout(err):
		return codeTimeout
	case isTLSError(err):
		return "tls"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return codeClosed
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return "dns"
	}
	return codeOfText(err.Error())
}

func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout() // context.DeadlineExceeded is one, too
}

func isTLSError(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	e, ok := errors.AsType[*net.OpError](err)
	return ok && e.Op == "remote error" // an alert
}

// codeOfText recognizes errors that net/http and grpc have as text only.
func codeOfText(text string) string {
	for _, known := range []struct{ part, code string }{
		{"connection refused", "refused"},
		{"connection reset", codeReset},
		{"broken pipe", codeReset},
		{"stream error", codeReset}, // HTTP/2: RST_STREAM
		{"server closed idle connection", codeClosed},
		{"GOAWAY", codeClosed},
		{"connection lost", codeClosed},
		{"EOF", codeClosed},
		{"closing", codeClosed},
	} {
		if strings.Contains(text, known.part) {
			return known.code
		}
	}
	return codeError
}
