package proxied

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"strconv"
	"time"
)

// call is what is sent: a read as programs make it most.
const call = `{"jsonrpc":"2.0","id":1,"method":"eth_call","params":[{"to":"0x6b175474e89094c44da98b954eedeac495271d0f",` +
	`"data":"0x70a08231000000000000000000000000f39fd6e51aad88f6f4ce6ab8827279cfffb92266"},"latest"]}`

// A caller is one connection.
type caller struct {
	conn    net.Conn
	in      *bufio.Reader
	request []byte // sent again and again
}

func dial(addr string) (*caller, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf("POST / HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", addr, len(call))
	return &caller{conn: conn, in: bufio.NewReaderSize(conn, 64<<10), request: []byte(head + call)}, nil
}

// sample is what came of a request.
type sample struct {
	first, whole time.Duration // until the first byte of the body, and until the last
	bytes        int64
}

var (
	okLine     = []byte("HTTP/1.1 200 OK\r\n")
	lengthName = []byte("Content-Length: ")
	chunked    = []byte("Transfer-Encoding: chunked\r\n")
)

// ask makes a request and reads the answer, which must be a success.
func (c *caller) ask() (s sample, err error) {
	began := time.Now()
	if _, err := c.conn.Write(c.request); err != nil {
		return s, err
	}
	length, inChunks, err := c.head()
	if err != nil {
		return s, err
	}
	if _, err := c.in.Peek(1); err != nil {
		return s, err
	}
	s.first = time.Since(began)
	if inChunks {
		if s.bytes, err = io.Copy(io.Discard, httputil.NewChunkedReader(c.in)); err != nil {
			return s, err
		}
		_, err = c.in.Discard(len("\r\n")) // after the last chunk
	} else {
		var n int
		n, err = c.in.Discard(length)
		s.bytes = int64(n)
	}
	s.whole = time.Since(began)
	return s, err
}

// head reads the head of an answer, and returns how long the body is.
func (c *caller) head() (length int, inChunks bool, err error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return 0, false, err
	}
	if !bytes.Equal(line, okLine) {
		return 0, false, fmt.Errorf("the answer is %q", line)
	}
	length = -1
	for {
		line, err := c.in.ReadSlice('\n')
		switch {
		case err != nil:
			return 0, false, err
		case len(line) == len("\r\n"):
			if length < 0 && !inChunks {
				return 0, false, errors.New("the answer does not say how long it is")
			}
			return length, inChunks, nil
		case bytes.HasPrefix(line, lengthName):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(lengthName):]))); err != nil {
				return 0, false, err
			}
		case bytes.Equal(line, chunked):
			inChunks = true
		}
	}
}
