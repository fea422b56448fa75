package connectapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/golden"
)

// say sends JSON to a verb and returns the status and the answer, written compactly:
// protojson puts spaces where it likes.
func (w *world) say(t *testing.T, verb, body string, headers ...string) (int, string) {
	t.Helper()
	r := httptest.NewRequest("POST", w.path+verb, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	got := httptest.NewRecorder()
	w.handler.ServeHTTP(got, r)
	var compact bytes.Buffer
	if err := json.Compact(&compact, got.Body.Bytes()); err != nil {
		t.Fatalf("%s %s: %d %v %q", verb, body, got.Code, err, got.Body)
	}
	return got.Code, compact.String()
}

var ticketID = regexp.MustCompile(`"id":"([A-Za-z0-9_-]+)"`)

// TestConversation asks one thing after another in JSON; the clock moves only where the
// script says so. ID stands for the last reservation's.
func TestConversation(t *testing.T) {
	w := newWorld(t, nil)
	var got bytes.Buffer
	id := ""
	for _, line := range []string{
		`Check {"policy":"default","key":"alice"}`,
		`Check {"policy":"default","key":"alice","cost":0}`,
		`Check {"policy":"default","key":"alice","cost":90,"peek":true}`,
		`Check {"policy":"default","key":"alice","cost":"90"}`,
		`Check {"policy":"default","key":"alice","cost":10}`,
		`Check {"policy":"default","key":"alice","cost":101}`,
		`Check {"policy":"api","key":"alice","cost":10}`,
		`Check {"policy":"api","key":"alice","cost":3}`,
		`Check {"policy":"llm","keys":{"user":"alice","nobody asks":"x"},"costs":{"tokens":990}}`,
		`Check {"policy":"llm","key":"ignored","keys":{"user":"alice"},"costs":{"tokens":11}}`,
		`Check {"policy":"default","key":"alice","maxWaitMs":0}`,
		`CheckBatch {"policy":["default","api"],"policy_index":[0,1,0],"key":["bob","bob","alice"],"cost":[1,2,50]}`,
		`CheckBatch {"policy":["default"],"key":["carol","carol"],"cost":[60,60],"atomic":true}`,
		`CheckBatch {"policy":["default"],"key":["dave","dave"],"cost":[60,60],"debit":true}`,
		`CheckBatch {"policy":["default"],"key":["carol"],"cost":[100],"peek":[true]}`,
		`CheckBatch {"policy":["llm"],"key":["",""],"keys":[{"name":"user","key":["dora","dora"]}],"costs":[{"unit":"tokens","cost":[600,600]}]}`,
		`CheckBatch {}`,
		`Reserve {"policy":"llm","keys":{"user":"erin"},"costs":{"tokens":800},"ttl_ms":30000}`,
		`Renew {"id":"ID","ttl_ms":45000}`,
		`Commit {"id":"ID","used_costs":{"tokens":250}}`,
		`Commit {"id":"ID","used":0}`,
		`Renew {"id":"ID"}`,
		`Reserve {"policy":"llm","keys":{"user":"erin"},"costs":{"tokens":800}}`,
		`Reserve {"policy":"default","key":"frank","cost":10}`,
		`Commit {"id":"ID","used":15}`,
		`Cancel {"id":"ID"}`,
		`Reserve {"policy":"slots","key":"gina"}`,
		`Reserve {"policy":"slots","key":"gina"}`,
		`Reserve {"policy":"slots","key":"gina"}`,
		`Cancel {"id":"ID"}`,
		`Reserve {"policy":"default","key":"hugo","cost":10,"ttl_ms":1000}`,
		`wait 2s`,
		`Cancel {"id":"ID"}`,
		`Check {"policy":"slots","key":"alice"}`,
		`Check {"policy":"nope","key":"alice"}`,
		`Check {"policy":"default","key":"alice","colour":"x"}`,
		`Check {"policy":"jobs","key":"alice","class":"realtime","cost":5}`,
		`Check {"policy":"jobs","key":"alice","class":"realtime","cost":2}`,
		`Check {"policy":"jobs","key":"alice","cost":4,"peek":true}`,
		`Check {"policy":"jobs","key":"alice","class":"urgent"}`,
		`Check {"policy":"default","key":"alice","class":"urgent"}`,
		`CheckBatch {"policy":["jobs","default"],"policy_index":[0,0,0,1],"class":["realtime","backfill",""],"class_index":[0,1,2,2],"key":["bob","bob","bob","bob"],"cost":[6,3,2,1]}`,
		`CheckBatch {"policy":["jobs"],"class":["realtime"],"key":["carol","carol"],"cost":[5,5]}`,
		`CheckBatch {"policy":["jobs"],"class":["realtime","backfill"],"class_index":[0,1],"key":["dave","dave"],"cost":[6,5],"atomic":true}`,
		`CheckBatch {"policy":["jobs"],"class":["realtime","backfill"],"class_index":[0,1],"key":["dave","dave"],"cost":[5,6],"debit":true}`,
		`CheckBatch {"policy":["jobs"],"class_index":[0,0],"key":["dave","dave"],"peek":[true,true]}`,
		`Reserve {"policy":"jobs","key":"erin","class":"realtime","cost":6}`,
		`Check {"policy":"jobs","key":"erin","class":"realtime","peek":true}`,
		`Commit {"id":"ID","used":2}`,
		`Check {"policy":"jobs","key":"erin","class":"realtime","peek":true}`,
		`Check {"policy":"jobs","key":"erin","class":"backfill","peek":true}`,
		`Reserve {"policy":"jobs","key":"erin","class":"urgent"}`,
	} {
		verb, body, _ := strings.Cut(line, " ")
		fmt.Fprintf(&got, "> %s\n", line)
		if verb == "wait" {
			pause, err := time.ParseDuration(body)
			must(t, err)
			w.clock.Pass(pause)
			continue
		}
		status, answer := w.say(t, verb, strings.ReplaceAll(body, "ID", id))
		if found := ticketID.FindStringSubmatch(answer); found != nil {
			id = found[1]
			answer = strings.Replace(answer, id, "ID", 1)
		}
		fmt.Fprintf(&got, "%d %s\n", status, answer)
	}
	golden.Check(t, "testdata/conversation.golden", got.Bytes())
}

// TestCharset: to connect, JSON with a charset is another codec, and its own would leave
// "allowed" out of a refusal.
func TestCharset(t *testing.T) {
	w := newWorld(t, nil)
	for _, kind := range []string{"application/json", "application/json; charset=utf-8", "application/json;charset=UTF-8", "Application/JSON"} {
		status, answer := w.say(t, "Check", `{"policy":"default","key":"a","cost":101}`, "Content-Type", kind)
		const want = `{"allowed":false,"policy":"default","limited_by":"default","limit":"100","remaining":"100","retry_after_ms":"-1","reset_after_ms":"0","reason":"too_costly"}`
		if status != 200 || answer != want {
			t.Errorf("%s: %d %s, want %s", kind, status, answer, want)
		}
		if status, answer = w.say(t, "Check", `{"policy":"default","key":"a","colour":"x"}`, "Content-Type", kind); status != 400 {
			t.Errorf("%s: an unknown field gets %d %s", kind, status, answer)
		}
	}
}
