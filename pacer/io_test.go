package pacer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// slowly returns bytes per second as a pacer.
func slowly(t *testing.T, bytes float64) *Pacer {
	t.Helper()
	p, err := New(Config{Rate: bytes})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPacedBytes: a megabyte at 100 kB/s takes 10 s less the last chunk, which
// is not waited for, and it never runs ahead on the way.
func TestPacedBytes(t *testing.T) {
	t.Parallel()
	const size, rate, chunk = 1_000_000, 100_000, 2_000
	sent := bytes.Repeat([]byte("weir"), size/4)
	for name, pass := range map[string]func(ctx context.Context, w io.Writer, p *Pacer) (int64, error){
		"reader": func(ctx context.Context, w io.Writer, p *Pacer) (int64, error) {
			return io.Copy(w, NewReader(ctx, bytes.NewReader(sent), p))
		},
		"reader of halves": func(ctx context.Context, w io.Writer, p *Pacer) (int64, error) {
			return io.Copy(w, NewReader(ctx, iotest.HalfReader(bytes.NewReader(sent)), p))
		},
		"reader with EOF at the last byte": func(ctx context.Context, w io.Writer, p *Pacer) (int64, error) {
			return io.Copy(w, NewReader(ctx, iotest.DataErrReader(bytes.NewReader(sent)), p))
		},
		"writer": func(ctx context.Context, w io.Writer, p *Pacer) (int64, error) {
			n, err := NewWriter(ctx, w, p).Write(sent)
			return int64(n), err
		},
		"writer of many pieces": func(ctx context.Context, w io.Writer, p *Pacer) (int64, error) {
			return io.CopyBuffer(NewWriter(ctx, w, p), iotest.HalfReader(bytes.NewReader(sent)), make([]byte, 2*chunk))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := &meter{t: t, rate: rate, chunk: chunk, begin: time.Now()}
				n, err := pass(t.Context(), got, slowly(t, rate))
				if n != size || err != nil || !bytes.Equal(got.bytes, sent) {
					t.Fatalf("%d bytes, %v", n, err)
				}
				want, slice := 10*time.Second-got.last, time.Second/rate
				if took := time.Since(got.begin); took < want || took >= want+slice {
					t.Errorf("took %v, want %v, to the slice", took, want)
				}
			})
		})
	}
}

// meter fails as soon as more has come than the rate and one chunk allow.
type meter struct {
	t           *testing.T
	rate, chunk int
	begin       time.Time
	bytes       []byte
	last        time.Duration // the time of the last piece
}

func (m *meter) Write(b []byte) (int, error) {
	m.bytes = append(m.bytes, b...)
	m.last = time.Duration(len(b)) * time.Second / time.Duration(m.rate)
	past := time.Since(m.begin)
	if allowed := int(past*time.Duration(m.rate)/time.Second) + m.chunk; len(m.bytes) > allowed {
		m.t.Errorf("%d bytes after %v, want at most %d", len(m.bytes), past, allowed)
	}
	return len(b), nil
}

// TestReaderReads: it is a reader as good as the one below.
func TestReaderReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		text := strings.Repeat("paced ", 100)
		for _, below := range []func(io.Reader) io.Reader{
			func(r io.Reader) io.Reader { return r }, iotest.OneByteReader, iotest.HalfReader,
		} {
			r := NewReader(t.Context(), below(strings.NewReader(text)), slowly(t, 1000))
			if err := iotest.TestReader(r, []byte(text)); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestChunk: a 50th of a second, from 1 byte to 64 KiB.
func TestChunk(t *testing.T) {
	t.Parallel()
	for rate, want := range map[float64]int{
		MinRate: 1, 49: 1, 99: 1, 100: 2, 100_000: 2_000, 3_276_800: 64 << 10, MaxRate: 64 << 10,
	} {
		if got := slowly(t, rate).chunk(); got != want {
			t.Errorf("%v per second: %d, want %d", rate, got, want)
		}
	}
}

// TestChunkFollowsRate: a rate that changes during a Write changes its chunks.
func TestChunkFollowsRate(t *testing.T) {
	t.Parallel()
	p := slowly(t, MaxRate)
	var sizes []int
	w := NewWriter(t.Context(), writerFunc(func(b []byte) (int, error) {
		sizes = append(sizes, len(b))
		return len(b), p.SetRate(1e6)
	}), p)
	if _, err := w.Write(make([]byte, 70_000)); err != nil || sizes[0] != 64<<10 || sizes[1] > 20_000 {
		t.Errorf("%v, %v", sizes, err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// TestReaderCancelled: no byte is lost, no byte is paid for, and nothing more is
// read.
func TestReaderCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		below := strings.NewReader("0123456789")
		p := slowly(t, 100)                     // two bytes in 20 ms
		r := NewReader(ctx, below, p)           // at 0 and 20 ms, and not at 40 ms
		got, err := io.ReadAll(r)               // six bytes
		none, again := r.Read(make([]byte, 10)) // and then no more
		if string(got) != "012345" || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%q, %v", got, err)
		}
		if none != 0 || !errors.Is(again, context.DeadlineExceeded) || below.Len() != 4 {
			t.Errorf("then %d, %v, with %d left", none, again, below.Len())
		}
		if granted := p.Stats().Granted; granted != 4 {
			t.Errorf("%d bytes were paid for, want 4", granted)
		}
	})
}

// TestWriterCancelled: what was not paid for is not written.
func TestWriterCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		var got strings.Builder
		p := slowly(t, 100)
		n, err := NewWriter(ctx, &got, p).Write([]byte("0123456789"))
		if n != 4 || got.String() != "0123" || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d, %q, %v", n, got.String(), err)
		}
		if granted := p.Stats().Granted; granted != 4 {
			t.Errorf("%d bytes were paid for, want 4", granted)
		}
	})
}

// TestReaderErrors: what the reader below says is said, and goes before an error
// of the context.
func TestReaderErrors(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			n   int
			err error
		}{{0, io.EOF}, {0, broken}, {0, nil}, {3, io.EOF}, {3, broken}, {3, nil}} {
			p := slowly(t, 1000)
			below := readerFunc(func([]byte) (int, error) { return test.n, test.err })
			n, err := NewReader(t.Context(), below, p).Read(make([]byte, 5))
			if n != test.n || err != test.err {
				t.Errorf("%+v: %d, %v", test, n, err)
			}
			if granted := p.Stats().Granted; granted != int64(test.n) {
				t.Errorf("%+v: %d bytes were paid for", test, granted)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		below := readerFunc(func([]byte) (int, error) { cancel(); return 3, broken })
		if n, err := NewReader(ctx, below, slowly(t, 1)).Read(make([]byte, 5)); n != 3 || err != broken {
			t.Errorf("cancelled: %d, %v", n, err)
		}
	})
}

// TestWriterErrors: a Write ends where the writer below ends, and says the same.
func TestWriterErrors(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			short int   // of the second chunk
			err   error // with it
			want  int
		}{{0, nil, 10}, {1, io.ErrShortWrite, 3}, {2, broken, 2}, {0, broken, 4}, {1, nil, 3}} {
			calls := 0
			below := writerFunc(func(b []byte) (int, error) {
				if calls++; calls == 2 {
					return len(b) - test.short, test.err
				}
				return len(b), nil
			})
			n, err := NewWriter(t.Context(), below, slowly(t, 100)).Write([]byte("0123456789"))
			if n != test.want || err != test.err {
				t.Errorf("%+v: %d, %v", test, n, err)
			}
		}
	})
}

// TestNothingIsFree: empty reads and writes reach the other side, and cost nothing.
func TestNothingIsFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		empty := func(b []byte) (int, error) { calls++; return len(b), nil }
		p := slowly(t, 1)
		_, readErr := NewReader(t.Context(), readerFunc(empty), p).Read(nil)
		_, writeErr := NewWriter(t.Context(), writerFunc(empty), p).Write(nil)
		if readErr != nil || writeErr != nil || calls != 2 || p.Stats().Granted != 0 {
			t.Errorf("%v, %v, %d calls, %d paid", readErr, writeErr, calls, p.Stats().Granted)
		}
	})
}
