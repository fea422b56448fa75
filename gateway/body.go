package gateway

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/jsonrpc"
	"github.com/weirlimit/weir/upstream"
)

// room bounds the memory of the long bodies that the requests of a route have at once. It is taken for what has arrived, not
// for what a request announces, and a client has half of it at most where there are several (see upstream.Call.Client).
type room struct {
	mu       sync.Mutex // guards the fields below
	taken    int64
	byClient map[string]int64 // of those with a name
}

// maxRoom is how many bytes long bodies may have together.
const maxRoom = 64 << 20

// take takes n bytes for a request of a client, or reports that they do not fit.
func (r *room) take(client string, n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken+n > maxRoom || client != "" && r.byClient[client]+n > maxRoom/2 {
		return false
	}
	r.addLocked(client, n)
	return true
}

// leave gives n bytes of a client back.
func (r *room) leave(client string, n int64) {
	if n == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addLocked(client, -n)
}

func (r *room) addLocked(client string, n int64) {
	r.taken += n
	if client == "" {
		return
	}
	if r.byClient == nil {
		r.byClient = map[string]int64{}
	}
	if r.byClient[client] += n; r.byClient[client] == 0 {
		delete(r.byClient, client)
	}
}

// firstRead is how many bytes of a body are read without taking room.
const firstRead = 64 << 10

// readBody reads the body of the request into a buffer that grows with what has arrived.
func (x *exchange) readBody(w http.ResponseWriter) ([]byte, *problem) {
	in := http.MaxBytesReader(w, x.caller.Body, x.settings.maxBody)
	body := make([]byte, 0, bytes.MinRead+min(max(0, x.caller.ContentLength), firstRead))
	for {
		if len(body) == cap(body) {
			size := x.nextSize(cap(body))
			if p := x.takeRoom(w, size); p != nil {
				return nil, p
			}
			body = append(make([]byte, 0, size), body...)
		}
		n, err := in.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch tooLong := (*http.MaxBytesError)(nil); {
		case err == io.EOF:
			return body, nil
		case errors.As(err, &tooLong):
			return nil, x.tooLong()
		case err != nil:
			return nil, &problem{status: http.StatusBadRequest, code: jsonrpc.CodeInvalidRequest, message: "the body cannot be read"}
		}
	}
}

// nextSize returns the size of the buffer after a full one: twice as large, but not larger than the body can be.
func (x *exchange) nextSize(size int) int64 {
	next := min(2*int64(size), x.settings.maxBody+bytes.MinRead)
	if announced := x.caller.ContentLength + bytes.MinRead; int64(size) < announced {
		next = min(next, announced)
	}
	return next
}

// takeRoom takes room for a buffer, or returns a problem if there is none.
func (x *exchange) takeRoom(w http.ResponseWriter, size int64) *problem {
	if size <= firstRead+bytes.MinRead {
		return nil
	}
	if x.route.room.take(upstream.ClientOf(x.caller.Context()), size-x.room) {
		x.room = size
		return nil
	}
	w.Header().Set("Connection", "close") // the rest is not read
	return &problem{
		status: http.StatusServiceUnavailable, code: codeUnavailable, retry: time.Second,
		message: "too many long requests at once: retry later, or send less in a batch", data: &details{Reason: "memory", RetryAfterMs: 1000},
	}
}

// leaveRoom gives the room back.
func (x *exchange) leaveRoom() { x.route.room.leave(upstream.ClientOf(x.caller.Context()), x.room) }
