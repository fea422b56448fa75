package cli

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestMockEndsWithItsContext ends a provider while a call waits for its response, in this process, where goleak
// sees what it leaves.
func TestMockEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var stdout, stderr bytes.Buffer
	answered := make(chan error, 1)
	code := Main(ctx, []string{"mock", "jsonrpc", "--listen", "localhost:0", "--latency", "10m"}, writerFunc(func(b []byte) {
		stdout.Write(b)
		url, found := strings.CutPrefix(strings.SplitN(string(b), "\n", 2)[0], "weir mock is listening on ")
		if !found {
			return
		}
		go func() {
			resp, err := client.Post(url+"/v2/demo", "application/json", strings.NewReader(`{"id":1,"method":"eth_chainId"}`))
			if err == nil {
				resp.Body.Close()
			}
			answered <- err
		}()
		go func() {
			defer cancel()
			for !received(t, client, url) {
			}
		}()
	}), &stderr)
	if code != exitOK || stderr.Len() > 0 || !strings.Contains(stdout.String(), "\neth_chainId  1 ") {
		t.Errorf("exit code %d, stdout %s, stderr %s", code, stdout.String(), stderr.String())
	}
	if err := <-answered; err == nil {
		t.Error("the call was answered, although the provider has ended before")
	}
}

// received reports whether a provider has received the call, or does not answer any more.
func received(t *testing.T, client *http.Client, url string) bool {
	resp, err := client.Get(url + "/mock/stats")
	if err != nil {
		t.Error(err)
		return true
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return err != nil || strings.Contains(string(text), `"requests":1,`)
}
