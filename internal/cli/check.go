package cli

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/ruleset"
)

// tokenVariable names the environment's variable with the token for weir check.
const tokenVariable = "WEIR_TOKEN"

// checkTimeout is how long weir check waits for an answer, besides --max-wait.
const checkTimeout = 10 * time.Second

type checkFlags struct {
	address string
	ca      string
	cost    string
	class   string
	keys    []string
	peek    bool
	json    bool
	wait    time.Duration
}

func newCheck() *cobra.Command {
	flags := checkFlags{address: client.DefaultAddress}
	cmd := &cobra.Command{
		Use:   "check POLICY [KEY] [flags]",
		Short: "Ask a daemon for a decision",
		Long: `Ask a daemon whether something may be done now, and charge it if so. The exit code is
0 if it was admitted, 3 if it was refused, 1 if there was no decision.

A budget is a policy of its name and needs no key. Its cost is one in units, such as
--cost cu=26,throughput=26; by method it can be asked for over HTTP: docs/http.md.

A daemon with clients requires a token: set WEIR_TOKEN. The certificate of one with TLS must
be trusted by this machine, or be signed by an authority of --ca.`,
		Example: `  weir check default alice
  weir check default alice --cost 5 --max-wait 2s
  weir check api alice --by ip=192.0.2.1 --cost tokens=300 --peek
  weir check jobs nightly --class backfill --cost 20
  weir check alchemy-main --cost cu=26,throughput=26
  until weir check backups nightly --max-wait 10s; do sleep 1; done
  weir check default alice --json
  weir check default alice --address https://weir.internal:8080 --ca ca.pem`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return misused(cmd, "a policy and a key are needed, such as 'weir check default alice'; a budget needs no key")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return flags.run(cmd, args[0], strings.Join(args[1:], ""))
		},
		DisableFlagsInUseLine: true,
	}
	cmd.Flags().StringVar(&flags.address, "address", flags.address, "the daemon's `address`: host:port, a URL, or unix:/path")
	cmd.Flags().StringVar(&flags.ca, "ca", "", "`file` with the authorities to trust, as PEM, for an https:// address (default those of this machine)")
	cmd.Flags().StringVar(&flags.cost, "cost", "", "`units` that it costs, such as 5, or tokens=300,requests=1 (default 1)")
	cmd.Flags().StringVar(&flags.class, "class", "", "`class` of work, under a policy with classes (default the one with the least share)")
	cmd.Flags().StringArrayVar(&flags.keys, "by", nil, "`attribute` that limits are by, such as ip=192.0.2.1; may be given again")
	cmd.Flags().BoolVar(&flags.peek, "peek", false, "only look, and take nothing")
	cmd.Flags().DurationVar(&flags.wait, "max-wait", 0, "most `duration` to wait for its turn, up to 10s")
	cmd.Flags().BoolVar(&flags.json, "json", false, "print the daemon's answer as it is")
	return cmd
}

func (f *checkFlags) run(cmd *cobra.Command, policy, key string) error {
	q, err := f.query(cmd, policy, key)
	if err != nil {
		return err
	}
	secure, err := authorities(cmd, f.ca)
	if err != nil {
		return err
	}
	daemon, err := client.New(client.Config{
		Address: f.address, TLS: secure, Timeout: checkTimeout, Token: func() string { return os.Getenv(tokenVariable) },
	})
	if err != nil {
		return err
	}
	defer daemon.Close()
	a, err := daemon.Check(cmd.Context(), q)
	if err != nil {
		return f.explain(err)
	}
	text := checkText(a)
	if f.json {
		if text, err = checkJSON(a); err != nil {
			return err
		}
	}
	fmt.Fprintln(cmd.OutOrStdout(), text)
	if !a.Allowed {
		return errDenied
	}
	return nil
}

// lacksAttribute is the daemon's message about an attribute that a query must have.
var lacksAttribute = regexp.MustCompile(`^"keys" lacks "([^"]+)"`)

// explain adds to an error what to do about it.
func (f *checkFlags) explain(err error) error {
	if _, untrusted := errors.AsType[x509.UnknownAuthorityError](err); untrusted {
		return fmt.Errorf("%w; trust the authority that signed it by --ca FILE", err)
	}
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist) {
		cause := err
		if op, ok := errors.AsType[*net.OpError](err); ok {
			cause = op
		}
		return fmt.Errorf("cannot reach the daemon at %s: %w; start a daemon with 'weir serve', or say by --address where it is", f.address, cause)
	}
	answer, ok := errors.AsType[*client.AnswerError](err)
	if !ok {
		return err
	}
	attribute := lacksAttribute.FindStringSubmatch(answer.Problem)
	switch {
	case answer.Access && os.Getenv(tokenVariable) == "" && strings.HasPrefix(answer.Problem, "missing client token"):
		return fmt.Errorf("%s wants a client's token: set %s", f.address, tokenVariable)
	case attribute != nil:
		return fmt.Errorf("%w: add --by %s=…", err, quote(attribute[1]))
	case strings.HasPrefix(answer.Problem, `"key" is missing`):
		return fmt.Errorf("%w; it is the argument after the policy, which only a budget can do without", err)
	}
	return err
}

// authorities returns the TLS settings of --ca; nil for the defaults.
func authorities(cmd *cobra.Command, ca string) (*tls.Config, error) {
	if ca == "" {
		return nil, nil
	}
	text, err := os.ReadFile(ca)
	if err != nil {
		return nil, misused(cmd, fmt.Sprintf("--ca: %v", err))
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, misused(cmd, fmt.Sprintf("--ca: %s has no certificate, which would begin with -----BEGIN CERTIFICATE-----", ca))
	}
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, nil
}

func (f *checkFlags) query(cmd *cobra.Command, policy, key string) (q client.Query, err error) {
	q = client.Query{Policy: policy, Key: key, Class: f.class, Peek: f.peek, MaxWait: f.wait}
	if q.Keys, err = parseBy(cmd, f.keys); err != nil {
		return q, err
	}
	if q.Costs, err = parseCost(f.cost); err != nil {
		return q, misused(cmd, fmt.Sprintf("--cost %q: must be a number such as 5, or units such as tokens=300,requests=1", f.cost))
	}
	return q, nil
}

// parseBy returns the attributes of --by; nil if there are none.
func parseBy(cmd *cobra.Command, list []string) (map[string]string, error) {
	var keys map[string]string
	for _, text := range list {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, misused(cmd, fmt.Sprintf("--by %q: must be name=value, such as ip=192.0.2.1", text))
		}
		if keys == nil {
			keys = map[string]string{}
		}
		keys[name] = value
	}
	return keys, nil
}

// parseCost returns what something costs, by unit; nil for "".
func parseCost(text string) (map[string]int64, error) {
	if text == "" {
		return nil, nil
	}
	if !strings.Contains(text, "=") {
		text = ruleset.Requests + "=" + text
	}
	costs := map[string]int64{}
	for part := range strings.SplitSeq(text, ",") {
		unit, amount, _ := strings.Cut(part, "=")
		n, err := strconv.ParseUint(amount, 10, 31)
		if err != nil {
			return nil, err
		}
		costs[unit] = int64(n)
	}
	return costs, nil
}

// checkJSON returns an answer as /v1/check writes it.
func checkJSON(a client.Answer) (string, error) {
	text, err := json.Marshal(struct {
		Allowed      bool   `json:"allowed"`
		Policy       string `json:"policy"`
		LimitedBy    string `json:"limited_by"`
		Limit        int64  `json:"limit"`
		Remaining    int64  `json:"remaining"`
		RetryAfterMS int64  `json:"retry_after_ms"`
		ResetAfterMS int64  `json:"reset_after_ms"`
		Reason       string `json:"reason"`
		DelayMS      int64  `json:"delay_ms,omitempty"`
	}{
		a.Allowed, a.Policy, a.LimitedBy, a.Limit, a.Remaining,
		ruleset.Millis(a.RetryAfter), ruleset.Millis(a.ResetAfter), a.Reason.String(), ruleset.Millis(a.Waited),
	})
	return string(text), err
}

// checkText formats an answer for people.
func checkText(a client.Answer) string {
	waited := ""
	if a.Waited > 0 {
		waited = fmt.Sprintf(", after %v", a.Waited)
	}
	switch {
	case a.Allowed:
		return fmt.Sprintf("allowed%s: %d of %d remain", waited, a.Remaining, a.Limit)
	case a.RetryAfter == weir.Never:
		return fmt.Sprintf("denied by %s: %s; waiting cannot help", a.LimitedBy, a.Reason)
	}
	return fmt.Sprintf("denied by %s%s: %s; retry after %v", a.LimitedBy, waited, a.Reason, a.RetryAfter)
}
