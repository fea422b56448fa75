package upstream

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// callRequest returns a request with a call.
func callRequest(t *testing.T, id int, method string, params ...string) *http.Request {
	t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":[%s]}`, id, method, strings.Join(params, ","))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	return r
}

func readCloser(text string) io.ReadCloser { return io.NopCloser(strings.NewReader(text)) }
