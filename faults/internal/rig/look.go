package rig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
)

// Get returns what a daemon has at a path, such as /metrics.
func (f *Fleet) Get(node int, path string) (string, error) {
	resp, err := f.client.Get(f.Daemons[node].url + path)
	if err != nil {
		return "", err
	}
	text, _, err := readAll(resp)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", path, resp.Status, text)
	}
	return text, err
}

// Post sends JSON to a path of a daemon. An answer of any status is no error.
func (f *Fleet) Post(node int, path string, body []byte) (status int, text string, header http.Header, err error) {
	resp, err := f.client.Post(f.Daemons[node].url+path, "application/json", bytes.NewReader(body))
	if err != nil {
		return 0, "", nil, err
	}
	text, header, err = readAll(resp)
	return resp.StatusCode, text, header, err
}

// readAll reads a response to its end, so that the connection is used again.
func readAll(resp *http.Response) (string, http.Header, error) {
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), resp.Header, err
}

// Metric returns the value of a daemon's metric without labels. It ends the test if there
// is none.
func (f *Fleet) Metric(node int, name string) (value float64) {
	f.t.Helper()
	text, err := f.Get(node, "/metrics")
	if err != nil {
		f.t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			if _, err := fmt.Sscan(rest, &value); err != nil {
				f.t.Fatalf("rig: %q: %v", line, err)
			}
			return value
		}
	}
	f.t.Fatalf("rig: %s has no metric %s", f.Daemons[node].url, name)
	return 0
}

// Total returns the sum of a metric over all daemons.
func (f *Fleet) Total(name string) (sum float64) {
	f.t.Helper()
	for i := range f.Daemons {
		sum += f.Metric(i, name)
	}
	return sum
}

// Addr is where the daemon listens.
func (d *Daemon) Addr() string { return strings.TrimPrefix(d.url, "http://") }

// Listener is where the daemon listens for a protocol: "http", "grpc" or "resp", as its
// log says.
func (d *Daemon) Listener(name string) (address string) {
	d.t.Helper()
	Await(d.t, "the daemon's log to say where "+name+" is", startLimit, func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, l := range d.log {
			var where map[string]any
			if l.Msg != "listening" || json.Unmarshal([]byte(l.Text), &where) != nil {
				continue
			}
			if address, _ = where[name].(string); address != "" {
				return nil
			}
		}
		return errors.New("it does not")
	})
	return address
}

// Port is that of Addr.
func (d *Daemon) Port() (port int) {
	d.t.Helper()
	_, digits, err := net.SplitHostPort(d.Addr())
	if err == nil {
		_, err = fmt.Sscan(digits, &port)
	}
	if err != nil {
		d.t.Fatalf("rig: %s: %v", d.url, err)
	}
	return port
}

// Hangup has the daemon read its configuration again.
func (d *Daemon) Hangup() {
	d.t.Helper()
	d.signal(syscall.SIGHUP)
}

// Logged returns how many lines of the log have a message that begins so.
func (d *Daemon) Logged(msg string) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.log {
		if strings.HasPrefix(l.Msg, msg) {
			n++
		}
	}
	return n
}

// Warnings returns the lines of the log so far whose level is WARN or ERROR.
func (d *Daemon) Warnings() (lines []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.log {
		if strings.Contains(l.Text, `"level":"WARN"`) || strings.Contains(l.Text, `"level":"ERROR"`) {
			lines = append(lines, l.Text)
		}
	}
	return lines
}

// Wrote returns how many lines of stderr, which need be none of the log, have a text in them.
func (d *Daemon) Wrote(text string) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.log {
		if strings.Contains(l.Text, text) {
			n++
		}
	}
	return n
}
