package traffic

import (
	"encoding/json"
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

// Always is a body that is always the same.
func Always(body string) func() string { return func() string { return body } }

type httpCaller struct {
	wire
	path string
	body func() string
}

func (c *httpCaller) call(n *Tally) { c.post(n, c.path, c.body()) }

// request is what is sent.
func request(path, body string) string {
	if body == "" {
		return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
	}
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		path, len(body), body)
}

// post makes a call, and returns what was answered with the status 200.
func (c *httpCaller) post(n *Tally, path, body string) (text string) {
	if !c.ready(n) {
		return ""
	}
	status, text, last, err := c.ask(request(path, body))
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
	if last {
		n.Closed.Add(1)
	}
	if last || err != nil {
		c.hangUp()
	}
	if status != http.StatusOK {
		return ""
	}
	return text
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

// Reservations are reserved with a body, and by turns committed, canceled, or renewed and
// committed. None is left to expire.
func Reservations(body func() string) Kind {
	return func(f *Traffic) caller {
		return &reserver{httpCaller: httpCaller{wire: wire{traffic: f, listener: onHTTP}}, body: body}
	}
}

type reserver struct {
	httpCaller
	body  func() string
	calls int
}

func (c *reserver) call(n *Tally) {
	var reserved struct{ ID string }
	text := c.post(n, "/v1/reserve", c.body())
	if text == "" || json.Unmarshal([]byte(text), &reserved) != nil || reserved.ID == "" {
		return // refused, which is counted
	}
	id := fmt.Sprintf(`{"id":%q}`, reserved.ID)
	switch c.calls++; c.calls % 3 {
	case 0:
		c.post(n, "/v1/cancel", id)
		return
	case 1:
		c.post(n, "/v1/renew", id)
	}
	c.post(n, "/v1/commit", id)
}
