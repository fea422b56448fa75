package adminapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"
)

// patience is how long a reader may take to receive what is sent at once.
const patience = 10 * time.Second

// stream writes server-sent events. Nothing leaves before flush.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	buffer  bytes.Buffer
}

// openStream begins the answer.
func openStream(w http.ResponseWriter) (*stream, error) {
	s := &stream{w: w, control: http.NewResponseController(w)}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx would keep events until it has many
	s.comment("open")
	return s, s.flush()
}

// comment adds a line that readers ignore.
func (s *stream) comment(text string) { s.buffer.WriteString(": " + text + "\n\n") }

// event adds an event. JSON has no line breaks, so it is one line of data.
func (s *stream) event(name string, data any) {
	text, err := json.Marshal(data)
	if err != nil { // strings and numbers always marshal
		panic(err)
	}
	if name != "" {
		s.buffer.WriteString("event: " + name + "\n")
	}
	s.buffer.WriteString("data: ")
	s.buffer.Write(text)
	s.buffer.WriteString("\n\n")
}

// flush sends what was added. It fails if the reader is gone, or too slow. The server's
// deadline is for short answers, so it does not hold here; between two flushes there is
// none, since HTTP/2 would end the stream when it passes. Where a connection cannot have
// deadlines, there is none to lift.
func (s *stream) flush() error {
	if s.buffer.Len() == 0 {
		return nil
	}
	_ = s.control.SetWriteDeadline(time.Now().Add(patience))
	defer s.control.SetWriteDeadline(time.Time{})
	_, err := s.buffer.WriteTo(s.w)
	if err != nil {
		return err
	}
	return s.control.Flush()
}
