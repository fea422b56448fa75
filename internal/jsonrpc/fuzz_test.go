package jsonrpc

import (
	"encoding/json"
	"errors"
	"testing"
)

// seeds are texts at the edges of what is accepted.
var seeds = []string{
	``, `{}`, `[]`, `[[]]`, `null`, `{"method":"m"}`, `[{"method":"m","id":1},{"method":"n"}]`,
	`{"method":"a","method":"b"}`, `{"Method":"a"}`, `{"m\u0065thod":"\ud800"}`, `{"method":"\\","id":-1e5}`,
	`{"error":{"code":1,"message":"m","data":[1]},"id":null}`, `[{"error":"x"},{"result":{}}]`, "{\"method\":\"\x00\"}",
}

// FuzzParse compares with encoding/json. Of an accepted call both read the same method, although
// encoding/json takes the last of several members and folds their case.
func FuzzParse(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := Parse(body)
		if err != nil {
			wantTyped(t, err, len(body))
			return
		}
		if len(req.Calls) == 0 || len(req.Calls) > MaxBatch || !req.Batch && len(req.Calls) != 1 {
			t.Fatalf("%d calls of %q", len(req.Calls), body)
		}
		type message struct {
			Method string           `json:"method"`
			ID     *json.RawMessage `json:"id"`
		}
		all := make([]message, 1)
		if req.Batch {
			err = json.Unmarshal(body, &all)
		} else {
			err = json.Unmarshal(body, &all[0])
		}
		if err != nil || len(all) != len(req.Calls) {
			t.Fatalf("%q: %d calls, encoding/json has %d, %v", body, len(req.Calls), len(all), err)
		}
		for i, call := range req.Calls {
			if call.Method != all[i].Method {
				t.Errorf("%q: method %q, encoding/json has %q", body, call.Method, all[i].Method)
			}
			if call.IsNotification && all[i].ID != nil {
				t.Errorf("%q: call %d has an id", body, i)
			}
		}
	})
}

func FuzzErrors(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		found, err := Errors(body)
		if err != nil {
			wantTyped(t, err, len(body))
		}
		if len(found) > MaxBatch || err != nil && found != nil {
			t.Errorf("%d errors of %q, %v", len(found), body, err)
		}
		for _, e := range found {
			if e.Data != "" && !json.Valid([]byte(e.Data)) || !json.Valid([]byte(e.Raw)) {
				t.Errorf("data %q, error %q of %q", e.Data, e.Raw, body)
			}
		}
	})
}

func wantTyped(t *testing.T, err error, size int) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Code != CodeParse && e.Code != CodeInvalidRequest || e.Member < -1 || e.Offset < -1 || e.Offset > size {
		t.Errorf("error %+v", err)
	}
}
