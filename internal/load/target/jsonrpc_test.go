package target

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
)

// serveRPC answers every request with the status and text given. It reports
// requests that are not what JSON-RPC wants.
func serveRPC(t *testing.T, status int, text, params string) string {
	t.Helper()
	return serveHTTP(t, false, h1, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		want := fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"a\"b"%s}`, params)
		if string(body) != want || !json.Valid(body) || r.Method != "POST" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("got %s %s %s, want %s", r.Method, r.Header, body, want)
		}
		w.WriteHeader(status)
		io.WriteString(w, text)
	}).URL
}

func TestJSONRPC(t *testing.T) {
	for _, tt := range []struct {
		status int
		text   string
		ok     bool
		code   string
	}{
		{200, `{"jsonrpc":"2.0","id":7,"result":"0x1"}`, true, "result"},
		{200, `{"jsonrpc":"2.0","id":7,"result":null}`, true, "result"},
		{200, ` {"id": 7, "error": null, "result": {"error": 5}} `, true, "result"},
		{200, `{"id":7,"error":{"code":-32005,"message":"limit"}}`, false, "error -32005"},
		{429, `{"id":7,"error":{"code":-32005}}`, false, "error -32005"},
		{200, `{"id":null,"error":{"code":-32700}}`, false, "error -32700"},
		{429, `slow down`, false, "429"},
		{503, `{"id":7,"result":1}`, false, "503"},
		{302, ``, false, "302"},
		{200, `{"id":8,"result":1}`, false, "bad reply"},
		{200, `{"id":"7","result":1}`, false, "bad reply"},
		{200, `{"id":null,"result":1}`, false, "bad reply"},
		{200, `{"result":1}`, false, "bad reply"},
		{200, `{"id":8,"error":{"code":1}}`, false, "bad reply"},
		{200, `{"id":7,"error":{}}`, false, "bad reply"},
		{200, `{"id":7,"error":"no"}`, false, "bad reply"},
		{200, `{"id":7}`, false, "bad reply"},
		{200, `{"id":7,"result":1}{}`, false, "bad reply"},
		{200, `[]`, false, "bad reply"},
		{200, `<html>`, false, "bad reply"},
		{200, ``, false, "bad reply"},
	} {
		url := serveRPC(t, tt.status, tt.text, `,"params":[7,3]`)
		r := call(t, Config{URL: url, Protocol: JSONRPC, Method: `a"b`, Body: `[{{seq}},{{worker}}]`})
		if r.OK != tt.ok || r.Code != tt.code || r.Bytes != len(tt.text) || (r.Err != nil) != (tt.code == "bad reply") {
			t.Errorf("%d %s: %+v", tt.status, tt.text, r)
		}
	}
}

func TestJSONRPCWithoutParams(t *testing.T) {
	url := serveRPC(t, 200, `{"id":7,"result":1}`, "")
	wantAnswer(t, call(t, Config{URL: url, Protocol: JSONRPC, Method: `a"b`}), true, "result")
}
