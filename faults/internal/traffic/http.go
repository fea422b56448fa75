package traffic

import (
	"fmt"
	"io"
	"net/http"
	"strings"
)

// HTTP is POSTs of JSON on a connection that is kept, or GETs where the body is "".
func HTTP(path string, body func() string) Kind {
	return func(f *Traffic) caller {
		return &httpCaller{wire: wire{traffic: f, listener: onHTTP}, path: path, body: body}
	}
}

// Fresh is the same with a new connection for each call.
func Fresh(path string, body func() string) Kind {
	return func(f *Traffic) caller {
		return &httpCaller{wire: wire{traffic: f, listener: onHTTP}, path: path, body: body, fresh: true}
	}
}

// Always is a body that is always the same.
func Always(body string) func() string { return func() string { return body } }

type httpCaller struct {
	wire
	path  string
	body  func() string
	fresh bool
}

func (c *httpCaller) request() string {
	body := c.body()
	if body == "" {
		return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", c.path)
	}
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		c.path, len(body), body)
}

func (c *httpCaller) call(n *Tally) {
	if !c.ready(n) {
		return
	}
	status, text, last, err := c.ask(c.request())
	switch {
	case err != nil:
		n.drop(1, err)
	case status == http.StatusRequestTimeout: // what arrives on a connection that is closed for being idle
		n.Told.Add(1)
	case status != http.StatusOK:
		n.fail("status %d: %s", status, text)
	case strings.Contains(text, `"allowed":`):
		n.decided(strings.Contains(text, `"allowed":true`))
	default:
		n.Done.Add(1)
	}
	if last && !c.fresh {
		n.Closed.Add(1)
	}
	if last || c.fresh || err != nil {
		c.hangUp()
	}
}

// ask sends a request and reads all of the answer. Last says that the daemon closes then.
func (c *httpCaller) ask(request string) (status int, text string, last bool, err error) {
	if _, err := io.WriteString(c.conn, request); err != nil {
		return 0, "", false, err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0, "", false, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), resp.Close, err
}

func (c *httpCaller) close() { c.hangUp() }
