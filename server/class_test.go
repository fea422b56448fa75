package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/secret"
)

// jobs is a policy of 10, of which realtime has 6 and backfill 4: the limit of an answer tells which
// class was charged.
func jobs() ruleset.Policy {
	return ruleset.Policy{Name: "jobs", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 10, Per: weir.Every(time.Hour), Classes: weir.ClassesOf(
		weir.Class{Name: "realtime", Guaranteed: 6, NoBorrow: true}, weir.Class{Name: "backfill", Guaranteed: 4, NoBorrow: true},
	)}}}}
}

// What an answer tells of the class.
const (
	asRealtime = "6"
	asBackfill = "4"
	forbidden  = "forbidden"
)

// A classCaller makes a call of a class with a token: check, batch or reserve. It returns the limit of
// the decision, or forbidden.
type classCaller func(token, call, class string) string

// Clients may use the classes that they were granted, over every protocol and in every call. A reload
// changes that at once, also for open connections.
func TestGrantsOfClasses(t *testing.T) {
	const worker, both = "worker-0123456789abcdef0123456789abcdef", "both-0123456789abcdef0123456789abcdef"
	live := func(classes ...string) Live {
		return Live{Policies: []ruleset.Policy{jobs()}, Clients: []Client{
			{Name: "worker", Tokens: []secret.Secret{secret.New(worker)}, Grants: Grants{Classes: classes}},
			{Name: "both", Tokens: []secret.Secret{secret.New(both)}},
			{Name: "other", Tokens: []secret.Secret{secret.New(rightToken)}, Grants: Grants{Policies: Patterns{"jobs"}, Classes: Patterns{"other"}}},
		}}
	}
	r := run(t, Config{Limiter: frozenTable(t), GRPC: Listener{Address: "127.0.0.1:0"}, RESP: Listener{Address: "127.0.0.1:0"}, Live: live("realtime")})
	protocols := map[string]classCaller{
		"HTTP": httpClasses(t, r.url+"/v1/"), "Connect": httpClasses(t, r.url+"/weir.v1.LimiterService/"), "gRPC": grpcClasses(t, r), "RESP": respClasses(t, r),
	}
	type row struct{ token, class, want string }
	expect := func(when string, rows ...row) {
		t.Helper()
		for name, call := range protocols {
			for _, kind := range []string{"check", "batch", "reserve"} {
				for _, tt := range rows {
					if got := call(tt.token, kind, tt.class); got != tt.want {
						t.Errorf("%s, %s: a %s of %.6s as %q: %s, want %s", when, name, kind, tt.token, tt.class, got, tt.want)
					}
				}
			}
		}
	}
	expect("granted realtime",
		row{worker, "", asRealtime}, row{worker, "realtime", asRealtime}, row{worker, "backfill", forbidden}, row{worker, "nothing", forbidden},
		row{both, "", asBackfill}, row{both, "realtime", asRealtime}, row{both, "backfill", asBackfill},
		row{rightToken, "", forbidden}, row{rightToken, "realtime", forbidden})
	if err := r.Reload(context.Background(), live("backfill")); err != nil {
		t.Fatal(err)
	}
	expect("granted backfill", row{worker, "", asBackfill}, row{worker, "realtime", forbidden}, row{worker, "backfill", asBackfill})
}

var limitIn = regexp.MustCompile(`"limit":\[?"?([0-9]+)`)

// httpClasses is a classCaller in JSON: of /v1, or of Connect if the URL is its service's.
func httpClasses(t *testing.T, base string) classCaller {
	client := newClient(t)
	return func(token, call, class string) string {
		t.Helper()
		one := fmt.Sprintf(`{"policy":"jobs","key":%q,"class":%q,"cost":0}`, token, class)
		path, body := call, one
		switch connect := strings.HasSuffix(base, "Service/"); {
		case connect && call == "batch":
			path, body = "CheckBatch", fmt.Sprintf(`{"policy":["jobs"],"key":["k"],"class":[%q],"cost":[0]}`, class)
		case connect:
			path = strings.ToUpper(call[:1]) + call[1:]
		case call == "batch":
			path, body = "check/batch", `{"checks":[`+one+`]}`
		}
		text, code := postAs(t, client, base+path, token, body)
		if found := limitIn.FindStringSubmatch(text); code == http.StatusOK && found != nil {
			return found[1]
		}
		return classRefused(code == http.StatusForbidden, text)
	}
}

// postAs posts JSON with a token.
func postAs(t *testing.T, client *http.Client, url, token, body string) (text string, code int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer json.RawMessage
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return string(answer), resp.StatusCode
}

// classRefused returns what a refusal is.
func classRefused(denied bool, text string) string {
	if denied && strings.Contains(text, " class") {
		return forbidden
	}
	return text
}

// grpcClasses is a classCaller over gRPC.
func grpcClasses(t *testing.T, r *running) classCaller {
	client := weirv1.NewLimiterServiceClient(dialGRPC(t, r, nil))
	none := int64(0)
	return func(token, call, class string) string {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
		var limit int64
		var err error
		switch call {
		case "check":
			var a *weirv1.CheckResponse
			a, err = client.Check(ctx, &weirv1.CheckRequest{Policy: "jobs", Key: "k", Class: class, Cost: &none})
			limit = a.GetLimit()
		case "reserve":
			var a *weirv1.ReserveResponse
			a, err = client.Reserve(ctx, &weirv1.ReserveRequest{Policy: "jobs", Key: "k", Class: class, Cost: &none})
			limit = a.GetLimit()
		default:
			var a *weirv1.CheckBatchResponse
			a, err = client.CheckBatch(ctx, &weirv1.CheckBatchRequest{Policy: []string{"jobs"}, Key: []string{"k"}, Class: []string{class}, Cost: []int64{0}})
			if err == nil {
				limit = a.GetLimit()[0]
			}
		}
		if err != nil {
			return classRefused(status.Code(err) == codes.PermissionDenied, err.Error())
		}
		return fmt.Sprint(limit)
	}
}

// respClasses is a classCaller over the Redis protocol, with one connection for each token. A batch is
// a pipeline.
func respClasses(t *testing.T, r *running) classCaller {
	conns := map[string]*bufio.ReadWriter{}
	return func(token, call, class string) string {
		t.Helper()
		conn := conns[token]
		if conn == nil {
			conn = dialRESP(t, r, token)
			conns[token] = conn
		}
		option := ""
		if class != "" {
			option = " CLASS " + class
		}
		command, skip := "WEIR.CHECK jobs k 0"+option+"\r\n", 0
		switch call {
		case "batch":
			command += command
		case "reserve":
			command, skip = "WEIR.RESERVE jobs k 0"+option+"\r\n", 1
		}
		conn.WriteString(command)
		conn.Flush()
		out := limitOfReply(t, conn, skip)
		if call == "batch" {
			if again := limitOfReply(t, conn, skip); again != out {
				t.Errorf("of a pipeline, %q and %q", out, again)
			}
		}
		return out
	}
}

func dialRESP(t *testing.T, r *running, token string) *bufio.ReadWriter {
	t.Helper()
	conn, err := net.Dial("tcp", r.bound.RESP.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "AUTH %s\r\n", token)
	rw := bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn))
	if reply, err := rw.ReadString('\n'); reply != "+OK\r\n" {
		t.Fatal(reply, err)
	}
	return rw
}

// limitOfReply reads a decision and returns its limit. Skip is the number of bulk strings before it.
func limitOfReply(t *testing.T, conn *bufio.ReadWriter, skip int) string {
	t.Helper()
	line := func() string {
		text, err := conn.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSuffix(text, "\r\n")
	}
	head := line()
	if !strings.HasPrefix(head, "*") {
		return classRefused(strings.HasPrefix(head, "-NOPERM "), head)
	}
	for range 2 * skip {
		line()
	}
	line() // allowed
	limit := line()
	for range 3 {
		line()
	}
	return strings.TrimPrefix(limit, ":")
}
