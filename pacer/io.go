package pacer

import (
	"context"
	"io"
)

// NewReader returns a reader that reads from r at the pace of p, a byte to the
// unit. It is as safe for concurrent use as r is; several readers may share p.
//
// Bytes are charged when it is known how many there are: after they were read,
// before they are returned. If ctx ends meanwhile, Read returns what it has read,
// uncharged, together with the error of ctx, so that no byte is lost; the next Read
// returns that error and reads nothing. Errors of r and io.EOF are returned as they
// are, and go before the error of ctx. A Read that blocks in r does not notice ctx.
//
// A Read returns at most as many bytes as p lets through in a 50th of a second,
// and at most 64 KiB, so that they flow evenly.
func NewReader(ctx context.Context, r io.Reader, p *Pacer) io.Reader {
	return &reader{ctx: ctx, r: r, pacer: p}
}

type reader struct {
	ctx   context.Context // io.Reader has no place for it
	r     io.Reader
	pacer *Pacer
}

func (r *reader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.r.Read(b[:min(len(b), r.pacer.chunk())])
	if n <= 0 {
		return n, err
	}
	if _, unpaid := r.pacer.WaitN(r.ctx, int64(n)); err == nil {
		err = unpaid
	}
	return n, err
}

// NewWriter returns a writer that writes to w at the pace of p, a byte to the
// unit. It is as safe for concurrent use as w is; several writers may share p.
//
// Bytes are charged before they are written, in chunks of at most what p lets
// through in a 50th of a second, and at most 64 KiB. If ctx ends meanwhile, Write
// returns its error and how much was written, and the rest is neither charged nor
// written. When w writes less than a chunk, or fails, Write ends there and returns
// what w says; the rest of that chunk is charged. A Write that blocks in w does
// not notice ctx.
func NewWriter(ctx context.Context, w io.Writer, p *Pacer) io.Writer {
	return &writer{ctx: ctx, w: w, pacer: p}
}

type writer struct {
	ctx   context.Context // io.Writer has no place for it
	w     io.Writer
	pacer *Pacer
}

func (w *writer) Write(b []byte) (written int, err error) {
	if len(b) == 0 {
		return w.w.Write(b)
	}
	for len(b) > 0 {
		chunk := b[:min(len(b), w.pacer.chunk())]
		if _, err := w.pacer.WaitN(w.ctx, int64(len(chunk))); err != nil {
			return written, err
		}
		n, err := w.w.Write(chunk)
		written += n
		if err != nil || n != len(chunk) {
			return written, err
		}
		b = b[n:]
	}
	return written, nil
}

const (
	chunksPerSecond = 50
	maxChunk        = 64 << 10
)

// chunk returns how many bytes to pay for at once. The rate may change at any
// time, so it is asked each time.
func (p *Pacer) chunk() int {
	perSecond := p.Config().Rate
	return int(max(1, min(perSecond/chunksPerSecond, maxChunk)))
}
