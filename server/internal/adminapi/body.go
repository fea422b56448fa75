package adminapi

import (
	"errors"
	"io"
	"net/http"
	"os"
)

// maxBody is the greatest length of a request body.
const maxBody = 16 << 10

// body reads the body of a call.
func (c *call) body() ([]byte, error) {
	if e := c.r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return nil, problemf(http.StatusUnsupportedMediaType, "bodies are taken as they are; leave Content-Encoding out")
	}
	body, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxBody))
	var tooLong *http.MaxBytesError
	switch {
	case err == nil:
		return body, nil
	case errors.As(err, &tooLong):
		return nil, problemf(http.StatusRequestEntityTooLarge, "a body may have %d bytes", maxBody)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, problemf(http.StatusRequestTimeout, "the body took too long to come")
	}
	return nil, problemf(http.StatusBadRequest, "the body ended early")
}

// noParams refuses a query where the body says everything.
func (c *call) noParams() error {
	_, err := c.params()
	return err
}
