package budget

import (
	"strings"
	"testing"
	"time"
)

// rpcError is a response of JSON-RPC with an error.
func rpcError(members string) string { return `{"jsonrpc":"2.0","id":1,"error":{` + members + `}}` }

// classifyTest is a response to a call at viewTime, 2026-11-18 12:00 UTC.
type classifyTest struct {
	name   string
	status int
	lines  []string
	body   string
	want   Refusal // none if it is the zero value
}

func testClassify(t *testing.T, tests []classifyTest) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := Classify(tt.status, header(tt.lines...), []byte(tt.body), viewTime)
			if got != tt.want || ok != (tt.want.Class != 0) {
				t.Errorf("got %+v, %v; want %+v", got, ok, tt.want)
			}
		})
	}
}

// TestClassifyEthereum: the forms of those who host nodes, F1.8 and F0.15.
func TestClassifyEthereum(t *testing.T) {
	const s = time.Second
	monthly := `"message":"Monthly capacity limit exceeded. Visit https://dashboard.alchemy.com/settings/billing to upgrade your scaling policy for continued service."`
	perSecond := Refusal{Class: RateLimited, Reason: "-32007"}
	testClassify(t, []classifyTest{
		{
			"Alchemy", 429, nil,
			rpcError(`"code":429,"message":"Your app has exceeded its compute units per second capacity. If you have retries enabled, you can safely ignore this message."`),
			Refusal{Class: RateLimited, Reason: "429"},
		},
		{"Alchemy with Retry-After", 429, []string{"Retry-After: 1"}, rpcError(`"code":429,"message":"x"`), Refusal{Class: RateLimited, Wait: s, Reason: "429"}},
		{"Alchemy over WebSocket", 200, nil, rpcError(`"code":429,"message":"Your app has exceeded its compute units per second capacity."`), Refusal{Class: RateLimited, Reason: "429"}},
		{"Alchemy's month", 429, nil, rpcError(`"code":429,` + monthly), Refusal{Class: AccessDenied, Reason: "429"}},
		{"Alchemy's month, older", 403, nil, rpcError(`"code":-32600,` + monthly), Refusal{Class: AccessDenied, Reason: "status 403"}},
		{"words inside the text", 429, nil, rpcError(`"code":429,"message":"x: Monthly capacity limit exceeded."`), Refusal{Class: RateLimited, Reason: "429"}},
		{
			"Infura's day", 402, nil,
			rpcError(`"code":402,"event":-33000,"message":"Payment Required","details":"You have reached your daily credit limit. To continue making requests, upgrade your plan or purchase additional credits"`),
			Refusal{Class: QuotaExhausted, Wait: 12 * time.Hour, Reason: "402/-33000"},
		},
		{
			"Infura's second", 429, nil,
			rpcError(`"code":429,"event":-33200,"message":"Too Many Requests","details":"You have surpassed your allowed throughput limit. Reduce the amount of requests per second or upgrade for more capacity."`),
			Refusal{Class: RateLimited, Reason: "429"},
		},
		{"a payment", 402, nil, rpcError(`"code":402,"message":"Payment Required"`), Refusal{Class: AccessDenied, Reason: "402"}},
		{
			"Infura, older", 429, nil,
			rpcError(`"code":-32005,"message":"project ID request rate exceeded","data":{"see":"https://infura.io/dashboard","rate":{"allowed_rps":50,"backoff_seconds":30,"current_rps":80.86}}`),
			Refusal{Class: RateLimited, Wait: 30 * s, Reason: "-32005"},
		},
		{
			"Infura, still older", 200, nil,
			rpcError(`"code":-32005,"message":"project ID request rate exceeded","data":{"current_rps":13.333,"allowed_rps":10.0,"backoff_seconds":30.5}`),
			Refusal{Class: RateLimited, Wait: 30500 * time.Millisecond, Reason: "-32005"},
		},
		{"Infura's count", 200, nil, rpcError(`"code":-32005,"message":"daily request count exceeded, request rate limited"`), Refusal{Class: RateLimited, Reason: "-32005"}},
		{"QuickNode", 429, nil, rpcError(`"code":-32007,"message":"50/second request limit reached - reduce calls per second or upgrade your account at quicknode.com"`), perSecond},
		{"QuickNode in a batch", 200, nil, `[{"id":1,"result":"0x1"},` + rpcError(`"code":-32007,"message":"25/second request limit reached - reduce calls per second"`) + `]`, perSecond},
		{"QuickNode's minute", 200, nil, rpcError(`"code":-32008,"message":"3000/minute request limit reached"`), Refusal{Class: RateLimited, Reason: "-32008"}},
		{"QuickNode, another limit", 200, nil, rpcError(`"code":-32009,"message":"10/second request limit reached"`), Refusal{Class: RateLimited, Reason: "-32009"}},
		{"QuickNode without an envelope", 429, nil, `{"code":-32007,"message":"300/second request limit reached"}`, Refusal{Class: RateLimited, Reason: "status 429"}},
		{"QuickNode, past due", 403, nil, `Endpoint Disabled`, Refusal{Class: AccessDenied, Reason: "status 403"}},
		{"a sequencer", 429, nil, rpcError(`"code":-32016,"message":"over rate limit"`), Refusal{Class: RateLimited, Reason: "status 429"}},
	})
}

// TestClassifyLanguageModels: the forms of those who host language models.
func TestClassifyLanguageModels(t *testing.T) {
	const s, day = time.Second, 24 * time.Hour
	anthropic := func(members string) string {
		return `{"type":"error","error":{` + members + `},"request_id":"req_1"}`
	}
	google := func(code, details string) string {
		return `{"error":{"code":` + code + `,"message":"You exceeded your current quota.","status":"RESOURCE_EXHAUSTED","details":[` + details + `]}}`
	}
	retryInfo := `{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"38.92s"}`
	quota := func(id string) string {
		return `{"@type":"type.googleapis.com/google.rpc.Help","links":[]},{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaMetric":"generativelanguage.googleapis.com/generate_content_free_tier_requests","quotaId":"` + id + `","quotaValue":"20"}]}`
	}
	perDayID, perMinuteID := "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"
	testClassify(t, []classifyTest{
		{
			"OpenAI's tokens", 429,
			[]string{"Retry-After-Ms: 1250", "Retry-After: 2"},
			`{"error":{"message":"Rate limit reached for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`,
			Refusal{RateLimited, 1250 * time.Millisecond, "tokens", "rate_limit_exceeded"},
		},
		{
			"OpenAI's headers", 429,
			[]string{
				"x-ratelimit-limit-requests: 60", "x-ratelimit-remaining-requests: 59", "x-ratelimit-reset-requests: 1s",
				"x-ratelimit-limit-tokens: 150000", "x-ratelimit-remaining-tokens: 0", "x-ratelimit-reset-tokens: 6m0s",
			},
			`{"error":{"message":"Rate limit reached","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}`,
			Refusal{RateLimited, 0, "tokens", "rate_limit_exceeded"}, // full in 6 minutes, not available in 6 minutes
		},
		{
			"OpenAI without money", 429,
			[]string{"Retry-After: 1"},
			`{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`,
			Refusal{Class: AccessDenied, Reason: "insufficient_quota"},
		},
		{
			"OpenAI without credits", 429, nil, `{"error":{"message":"x","type":"insufficient_quota","code":"credit_balance_exhausted"}}`,
			Refusal{Class: AccessDenied, Reason: "credit_balance_exhausted"},
		},
		{"OpenAI, a new code", 429, nil, `{"error":{"message":"x","type":"insufficient_quota","code":"new"}}`, Refusal{Class: AccessDenied, Reason: "insufficient_quota"}},
		{"OpenAI's growth", 429, nil, `{"error":{"message":"x","type":"rate_limit_error","code":"slow_down"}}`, Refusal{Class: Overloaded, Reason: "slow_down"}},
		{
			"OpenAI overloaded", 503,
			[]string{"Retry-After: 5"},
			`{"error":{"message":"Our servers are currently overloaded. Please try again later.","type":"service_unavailable_error","param":null,"code":"server_is_overloaded"}}`,
			Refusal{Class: Overloaded, Wait: 5 * s, Reason: "server_is_overloaded"},
		},
		{
			"OpenAI's week", 429,
			[]string{"Retry-After: 600"}, // opencodex #4024: until next week, whatever else it says
			`{"error":{"type":"usage_limit_reached","message":"The usage limit has been reached","plan_type":"plus","resets_at":1795521600,"resets_in_seconds":518400}}`,
			Refusal{Class: QuotaExhausted, Wait: 6 * day, Reason: "usage_limit_reached"},
		},
		{"a wrong key", 401, nil, `{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","code":"invalid_api_key"}}`, Refusal{Class: AccessDenied, Reason: "status 401"}},
		{"Azure", 429, []string{"Retry-After: 86400"}, `{"error":{"code":"429","message":"Requests have exceeded the token rate limit"}}`, Refusal{Class: RateLimited, Wait: day, Reason: "429"}},
		{
			"Anthropic", 429,
			[]string{"Retry-After: 42", "anthropic-ratelimit-input-tokens-remaining: 0", "anthropic-ratelimit-input-tokens-limit: 40000", "anthropic-ratelimit-input-tokens-reset: 2026-11-18T12:01:00Z"},
			anthropic(`"type":"rate_limit_error","message":"This request would exceed your organization's rate limit of 40,000 input tokens per minute."`),
			Refusal{RateLimited, 42 * s, "input-tokens", "rate_limit_error"},
		},
		{
			"Anthropic's growth", 429, nil,
			anthropic(`"type":"rate_limit_error","message":"This request would exceed your organization's (8d863577-e8f4-4b16-99cc-a6128a02233b) maximum usage increase rate for input tokens per minute. Please scale up your input tokens usage more gradually to stay within the acceleration limit."`),
			Refusal{Class: Overloaded, Reason: "rate_limit_error"},
		},
		{"Anthropic overloaded", 529, nil, anthropic(`"type":"overloaded_error","message":"Overloaded"`), Refusal{Class: Overloaded, Reason: "overloaded_error"}},
		{"Anthropic overloaded, no body", 529, nil, ``, Refusal{Class: Overloaded, Reason: "status 529"}},
		{"Anthropic's bill", 402, nil, anthropic(`"type":"billing_error","message":"x"`), Refusal{Class: AccessDenied, Reason: "billing_error"}},
		{
			"Anthropic's own month", 400, nil,
			anthropic(`"type":"invalid_request_error","message":"You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC."`),
			Refusal{Class: QuotaExhausted, Wait: 12*day + 12*time.Hour, Reason: "invalid_request_error"},
		},
		{
			"Anthropic's workspace", 400, nil,
			anthropic(`"type":"invalid_request_error","message":"You have reached your specified workspace API usage limits. You will regain access on 2026-11-18 at 13:30 UTC."`),
			Refusal{Class: QuotaExhausted, Wait: 90 * time.Minute, Reason: "invalid_request_error"},
		},
		{
			"an instant in another form", 400, nil,
			anthropic(`"type":"invalid_request_error","message":"You have reached your specified API usage limits. Come back on 2026-12-01 at 00:00 UTC."`),
			Refusal{Class: QuotaExhausted, Reason: "invalid_request_error"},
		},
		{
			"an instant that is none", 400, nil,
			anthropic(`"type":"invalid_request_error","message":"You have reached your specified API usage limits. You will regain access on 2026-13-01 at 00:00 UTC."`),
			Refusal{Class: QuotaExhausted, Reason: "invalid_request_error"},
		},
		{
			"an instant in the past", 400, nil,
			anthropic(`"type":"invalid_request_error","message":"You have reached your specified API usage limits. You will regain access on 2026-11-01 at 00:00 UTC."`),
			Refusal{Class: QuotaExhausted, Reason: "invalid_request_error"},
		},
		{
			"an instant far away", 400, nil,
			anthropic(`"type":"invalid_request_error","message":"You have reached your specified API usage limits. You will regain access on 9999-12-01 at 00:00 UTC."`),
			Refusal{Class: QuotaExhausted, Wait: maxReset, Reason: "invalid_request_error"},
		},
		{
			"Anthropic's month", 429, nil,
			anthropic(`"type":"rate_limit_error","message":"You have reached your API usage limits: your organization has crossed its monthly API usage threshold, set based on your organization's API tier. You will regain access on 2026-12-01 at 00:00 UTC.","details":{"error_code":"enforced_spend_limit_reached"}`),
			Refusal{Class: AccessDenied, Wait: 12*day + 12*time.Hour, Reason: "enforced_spend_limit_reached"},
		},
		{
			"Anthropic's month, without the time", 429, nil,
			anthropic(`"type":"rate_limit_error","message":"x","details":{"error_code":"enforced_spend_limit_reached"}`),
			Refusal{Class: AccessDenied, Reason: "enforced_spend_limit_reached"},
		},
		{
			"Anthropic without credits", 400, nil,
			anthropic(`"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."`),
			Refusal{Class: AccessDenied, Reason: "invalid_request_error"},
		},
		{"Gemini's minute", 429, nil, google("429", quota(perMinuteID)+","+retryInfo), Refusal{Class: RateLimited, Wait: 38920 * time.Millisecond, Reason: "429"}},
		{"Gemini's stream", 429, nil, "[" + google("429", quota(perMinuteID)+","+retryInfo) + "]", Refusal{Class: RateLimited, Wait: 38920 * time.Millisecond, Reason: "429"}},
		{"Gemini's day", 429, nil, google("429", quota(perDayID)), Refusal{Class: QuotaExhausted, Wait: 20 * time.Hour, Reason: "QuotaFailure/PerDay"}},
		{"Gemini's day, with the time", 429, nil, google("429", quota(perDayID)+`,{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"35640s"}`), Refusal{Class: QuotaExhausted, Wait: 9*time.Hour + 54*time.Minute, Reason: "QuotaFailure/PerDay"}},
		{"Gemini overloaded", 429, nil, google("429", `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"MODEL_CAPACITY_EXHAUSTED"},`+retryInfo), Refusal{Class: Overloaded, Wait: 38920 * time.Millisecond, Reason: "MODEL_CAPACITY_EXHAUSTED"}},
		{"Gemini without credits", 402, nil, google("402", ""), Refusal{Class: AccessDenied, Reason: "402"}},
		{"Gemini, a wrong key", 400, nil, google("400", `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com"}`), Refusal{Class: AccessDenied, Reason: "API_KEY_INVALID"}},
	})
}

// TestClassifyStatus: without an error that is known, the status and the headers decide.
func TestClassifyStatus(t *testing.T) {
	const s = time.Second
	nothing := []string{"X-RateLimit-Limit: 5000", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1795003260"} // in a minute
	testClassify(t, []classifyTest{
		{"429", 429, nil, "", Refusal{Class: RateLimited, Reason: "status 429"}},
		{"429 with HTML", 429, nil, "<html>", Refusal{Class: RateLimited, Reason: "status 429"}},
		{"429 at once", 429, []string{"Retry-After: 0"}, "", Refusal{Class: RateLimited, Reason: "status 429"}},
		{"429 until next week", 429, []string{"Retry-After: Wed, 25 Nov 2026 12:00:00 GMT"}, "", Refusal{Class: RateLimited, Wait: 7 * 24 * time.Hour, Reason: "status 429"}},
		{"429 for years", 429, []string{"Retry-After: 99999999999"}, "", Refusal{Class: RateLimited, Wait: maxReset, Reason: "status 429"}},
		{"a window", 429, nothing, "", Refusal{RateLimited, 60 * s, "requests", "status 429"}},
		{"a window and Retry-After", 429, append([]string{"Retry-After: 5"}, nothing...), "", Refusal{RateLimited, 5 * s, "requests", "status 429"}},
		{"the draft", 429, []string{`RateLimit-Policy: "b";q=9;qu="content-bytes", "c";q=5`, `RateLimit: "b";r=0;t=7, "c";r=2;t=99`}, "", Refusal{RateLimited, 7 * s, "content-bytes", "status 429"}},
		{"two units", 429, []string{"x-ratelimit-remaining-tokens: 0", "x-ratelimit-remaining-requests: 0"}, "", Refusal{Class: RateLimited, Reason: "status 429"}},
		{"GitHub", 403, nothing, `{"message":"API rate limit exceeded for user ID 1."}`, Refusal{RateLimited, 60 * s, "requests", "status 403"}},
		{"GitHub's second limit", 403, []string{"Retry-After: 60", "X-RateLimit-Remaining: 4000"}, `{"message":"You have exceeded a secondary rate limit."}`, Refusal{Class: RateLimited, Wait: 60 * s, Reason: "status 403"}},
		{"403", 403, []string{"X-RateLimit-Remaining: 4999"}, "", Refusal{Class: AccessDenied, Reason: "status 403"}},
		{"401 with Retry-After", 401, []string{"Retry-After: 5"}, "", Refusal{Class: AccessDenied, Reason: "status 401"}},
		{"402", 402, nil, "", Refusal{Class: AccessDenied, Reason: "status 402"}},
		{"503", 503, nil, "", Refusal{Class: Overloaded, Reason: "status 503"}},
		{"503 with a window", 503, nothing, "", Refusal{Class: Overloaded, Reason: "status 503"}},
		{"an error with two codes", 429, nil, rpcError(`"code":402,"code":402`), Refusal{Class: RateLimited, Reason: "status 429"}},
		{"a long body", 429, nil, rpcError(`"code":402,"data":"` + strings.Repeat("x", maxRefusal) + `"`), Refusal{Class: RateLimited, Reason: "status 429"}},
	})
}

// TestClassifyGravest: of the members of a batch that are refused, one decides.
func TestClassifyGravest(t *testing.T) {
	const rate30, rate60 = `{"error":{"code":-32005,"data":{"backoff_seconds":30}}}`, `{"error":{"code":-32005,"data":{"backoff_seconds":60}}}`
	const quota, denied, overloaded = `{"error":{"code":402,"event":-33000}}`, `{"error":{"code":402}}`, `{"error":{"code":"slow_down"}}`
	const result, reverted, sender = `{"result":1}`, `{"error":{"code":3,"message":"execution reverted"}}`, `{"error":{"code":-32017}}`
	tests := []struct {
		name    string
		members []string
		class   RefusalClass
		wait    time.Duration
	}{
		{"the longest wait", []string{result, rate30, rate60, reverted, rate30}, RateLimited, time.Minute},
		{"rate before overloaded", []string{overloaded, rate30, overloaded}, RateLimited, 30 * time.Second},
		{"quota before rate", []string{rate60, quota, rate60}, QuotaExhausted, 12 * time.Hour},
		{"denied before quota", []string{denied, quota}, AccessDenied, 0},
		{"a sender with others", []string{sender, rate30, sender}, RateLimited, 30 * time.Second},
		{"only a sender", []string{result, sender, reverted}, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := Classify(429, nil, []byte("["+strings.Join(tt.members, ",")+"]"), viewTime)
			if got.Class != tt.class || got.Wait != tt.wait || ok != (tt.class != 0) {
				t.Errorf("got %+v, %v; want %v, %v", got, ok, tt.class, tt.wait)
			}
		})
	}
}

// TestClassifyNone: what says "limit", "exceeded" or 429, and has nothing to do with the account, F1.8.
func TestClassifyNone(t *testing.T) {
	testClassify(t, []classifyTest{
		{"a result", 200, nil, `{"jsonrpc":"2.0","id":1,"result":{"error":{"code":429}}}`, Refusal{}},
		{"a result that remains nothing", 200, []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 60", "Retry-After: 9"}, `{"result":1}`, Refusal{}},
		{"a deadline", 200, nil, rpcError(`"code":-32000,"message":"context deadline exceeded"`), Refusal{}},
		{"block 4,290,000", 200, nil, rpcError(`"code":-32000,"message":"block 4290000 not found: limit 429 exceeded"`), Refusal{}},
		{"500 with 429 in its text", 500, []string{"Retry-After: 9"}, `HTTP 429 Too Many Requests`, Refusal{}},
		{"500 with 429 in its error", 500, nil, rpcError(`"code":-32603,"message":"429 Too Many Requests: rate limit"`), Refusal{}},
		{"too many results", 200, nil, rpcError(`"code":-32005,"message":"query returned more than 10000 results"`), Refusal{}},
		{"too many results, with data", 200, nil, rpcError(`"code":-32005,"message":"query returned more than 10000 results","data":{"from":"0x429","limit":10000,"to":"0x430"}`), Refusal{}},
		{"eRPC #816: the sender", 200, nil, rpcError(`"code":-32000,"message":"sender is over rate limit"`), Refusal{}},
		{"the sender, as its sequencer says it", 429, []string{"Retry-After: 1"}, rpcError(`"code":-32017,"message":"sender is over rate limit"`), Refusal{}},
		{"a slot of Solana", 200, nil, rpcError(`"code":-32007,"message":"Slot 132431657 was skipped, or missing due to ledger jump to recent snapshot"`), Refusal{}},
		{"an old slot of Solana", 200, nil, rpcError(`"code":-32009,"message":"Slot 132431657 was skipped, or missing in long-term storage"`), Refusal{}},
		{"Besu's permission", 200, nil, rpcError(`"code":-32007,"message":"Sender account not authorized to send transactions"`), Refusal{}},
		{"Besu's price", 200, nil, rpcError(`"code":-32009,"message":"Gas price below configured minimum gas price"`), Refusal{}},
		{"a long request", 200, nil, rpcError(`"code":-32007,"message":"Request is too big"`), Refusal{}},
		{"a text that quotes a refusal", 200, nil, rpcError(`"code":-32007,"message":"x 50/second request limit reached"`), Refusal{}},
		{"an error that is a text", 200, nil, `{"error":"429 insufficient_quota"}`, Refusal{}},
		{"a code in quotes", 200, nil, `{"error":{"code":"429","type":"insufficient_quota"}}`, Refusal{}},
		{"a failed response that was stored", 200, nil, `{"id":"resp_1","status":"failed","error":{"code":"rate_limit_exceeded","message":"x"}}`, Refusal{}},
		{"a request that is wrong", 400, nil, `{"type":"error","error":{"type":"invalid_request_error","message":"messages: You have reached your specified API usage limits."}}`, Refusal{}},
		{"a request that is too long", 413, []string{"Retry-After: 9"}, `{"error":{"type":"request_too_large"}}`, Refusal{}},
		{"a name elsewhere", 400, nil, `{"error":{"param":"insufficient_quota","message":"insufficient_quota"}}`, Refusal{}},
	})
}

func TestRefusalClassString(t *testing.T) {
	for class, want := range map[RefusalClass]string{
		Overloaded: "overloaded", RateLimited: "rate", QuotaExhausted: "quota", AccessDenied: "denied", 0: "RefusalClass(0)",
	} {
		if got := class.String(); got != want {
			t.Errorf("%d: %q, want %q", int(class), got, want)
		}
	}
}

// TestRules: every rule can be reached, so none before it with the same name matches whatever it does.
func TestRules(t *testing.T) {
	for i, r := range rules {
		for _, before := range rules[:i] {
			if before.name == r.name && before.message == nil && !before.timed {
				t.Errorf("rule %d, %q, is behind one for all errors of that name", i, r.name)
			}
		}
	}
}
