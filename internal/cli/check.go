package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/server"
)

// tokenVariable names the environment's variable with the token for weir check.
const tokenVariable = "WEIR_TOKEN"

// checkTimeout is how long weir check waits for an answer, besides --max-wait.
const checkTimeout = 10 * time.Second

// maxAnswer is the greatest length of an answer that is read.
const maxAnswer = 1 << 20

type checkFlags struct {
	address string
	cost    string
	keys    []string
	peek    bool
	json    bool
	wait    time.Duration
}

func newCheck() *cobra.Command {
	flags := checkFlags{address: server.DefaultHTTP}
	cmd := &cobra.Command{
		Use:   "check POLICY KEY [flags]",
		Short: "Ask a daemon whether something may be done",
		Long: `Ask a daemon whether something may be done now, and take it if so. The exit code says
it to scripts: 0 if it may, 3 if it may not, 1 if there was no answer.

A daemon with clients wants a token: set WEIR_TOKEN.`,
		Example: `  weir check default alice
  weir check default alice --cost 5 --max-wait 2s
  weir check api alice --by ip=192.0.2.1 --cost tokens=300 --peek
  until weir check backups nightly --max-wait 10s; do sleep 1; done
  weir check default alice --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return misused(cmd, "a policy and a key are needed, such as 'weir check default alice'")
			}
			return nil
		},
		RunE:                  func(cmd *cobra.Command, args []string) error { return flags.run(cmd, args[0], args[1]) },
		DisableFlagsInUseLine: true,
	}
	cmd.Flags().StringVar(&flags.address, "address", flags.address, "the daemon's `address`: host:port, a URL, or unix:/path")
	cmd.Flags().StringVar(&flags.cost, "cost", "", "`units` that it costs, such as 5, or tokens=300,requests=1 (default 1)")
	cmd.Flags().StringArrayVar(&flags.keys, "by", nil, "`attribute` that limits are by, such as ip=192.0.2.1; may be given again")
	cmd.Flags().BoolVar(&flags.peek, "peek", false, "only look, and take nothing")
	cmd.Flags().DurationVar(&flags.wait, "max-wait", 0, "how `long` to wait for its turn, 10s at most")
	cmd.Flags().BoolVar(&flags.json, "json", false, "print the daemon's answer as it is")
	return cmd
}

func (f *checkFlags) run(cmd *cobra.Command, policy, key string) error {
	body, err := f.body(cmd, policy, key)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), checkTimeout+f.wait)
	defer cancel()
	answer, err := f.ask(ctx, body)
	if err != nil {
		return err
	}
	var d checkAnswer
	if err := json.Unmarshal(answer, &d); err != nil {
		return fmt.Errorf("%s: this is no answer of a weir daemon: %w", f.address, err)
	}
	if f.json {
		fmt.Fprintf(cmd.OutOrStdout(), "%s\n", bytes.TrimSpace(answer))
	} else {
		fmt.Fprintln(cmd.OutOrStdout(), d)
	}
	if !d.Allowed {
		return errDenied
	}
	return nil
}

// checkBody is what the daemon is asked.
type checkBody struct {
	Policy    string            `json:"policy"`
	Key       string            `json:"key"`
	Keys      map[string]string `json:"keys,omitempty"`
	Cost      any               `json:"cost,omitempty"`
	Peek      bool              `json:"peek,omitempty"`
	MaxWaitMS int64             `json:"max_wait_ms,omitempty"`
}

func (f *checkFlags) body(cmd *cobra.Command, policy, key string) ([]byte, error) {
	b := checkBody{Policy: policy, Key: key, Peek: f.peek, MaxWaitMS: f.wait.Milliseconds()}
	for _, text := range f.keys {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, misused(cmd, fmt.Sprintf("--by %q: must be name=value, such as ip=192.0.2.1", text))
		}
		if b.Keys == nil {
			b.Keys = map[string]string{}
		}
		b.Keys[name] = value
	}
	var err error
	if b.Cost, err = parseCost(f.cost); err != nil {
		return nil, misused(cmd, fmt.Sprintf("--cost %q: must be a number such as 5, or units such as tokens=300,requests=1", f.cost))
	}
	return json.Marshal(b)
}

// parseCost returns a number, a map of units, or nil for "".
func parseCost(text string) (any, error) {
	if text == "" {
		return nil, nil
	}
	if !strings.Contains(text, "=") {
		return strconv.ParseUint(text, 10, 31)
	}
	units := map[string]uint64{}
	for part := range strings.SplitSeq(text, ",") {
		unit, amount, _ := strings.Cut(part, "=")
		n, err := strconv.ParseUint(amount, 10, 31)
		if err != nil {
			return nil, err
		}
		units[unit] = n
	}
	return units, nil
}

// ask sends the question and returns the answer.
func (f *checkFlags) ask(ctx context.Context, body []byte) ([]byte, error) {
	client, url := f.client()
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/check", bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("--address %q: %w", f.address, err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token := os.Getenv(tokenVariable); token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %s", f.address, resp.Status, problemText(answer))
	}
	return answer, nil
}

// client returns what reaches the daemon, and the beginning of its URLs.
func (f *checkFlags) client() (*http.Client, string) {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
	client := &http.Client{Transport: transport}
	if path, ok := strings.CutPrefix(f.address, "unix:"); ok {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
		return client, "http://localhost"
	}
	if strings.Contains(f.address, "://") {
		return client, strings.TrimSuffix(f.address, "/")
	}
	return client, "http://" + f.address
}

// problemText returns what an answer that is no decision says.
func problemText(answer []byte) string {
	var p struct{ Detail string }
	if json.Unmarshal(answer, &p) == nil && p.Detail != "" {
		return p.Detail
	}
	return fmt.Sprintf("%.200q", answer)
}

// checkAnswer is what a daemon says.
type checkAnswer struct {
	Allowed      bool   `json:"allowed"`
	Policy       string `json:"policy"`
	LimitedBy    string `json:"limited_by"`
	Limit        int64  `json:"limit"`
	Remaining    int64  `json:"remaining"`
	RetryAfterMS int64  `json:"retry_after_ms"`
	Reason       string `json:"reason"`
	DelayMS      int64  `json:"delay_ms"`
}

// String tells it to people.
func (a checkAnswer) String() string {
	waited := ""
	if a.DelayMS > 0 {
		waited = fmt.Sprintf(", after %v", time.Duration(a.DelayMS)*time.Millisecond)
	}
	switch {
	case a.Allowed:
		return fmt.Sprintf("allowed%s: %d of %d remain", waited, a.Remaining, a.Limit)
	case a.RetryAfterMS < 0:
		return fmt.Sprintf("denied by %s: %s; waiting cannot help", a.LimitedBy, a.Reason)
	}
	return fmt.Sprintf("denied by %s%s: %s; retry after %v", a.LimitedBy, waited, a.Reason, time.Duration(a.RetryAfterMS)*time.Millisecond)
}
