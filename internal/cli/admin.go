package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

const (
	// defaultAdmin is where the daemon on this machine has its admin API.
	defaultAdmin = "http://127.0.0.1:8080"

	// adminTokenVariable names the environment's variable with the operator's token.
	adminTokenVariable = "WEIR_ADMIN_TOKEN"

	// adminTimeout is how long an operator's call may take.
	adminTimeout = 30 * time.Second

	// maxAnswer is the greatest length of an answer that is read.
	maxAnswer = 64 << 20
)

// adminHelp is what the help of every operators' command ends with.
const adminHelp = `

It calls the admin API of a daemon. If the daemon has operators' tokens, set WEIR_ADMIN_TOKEN
or --token-file. The certificate of a daemon with TLS must be trusted by this machine, or be
signed by an authority of --ca.`

// adminFlags are the flags of every operators' command.
type adminFlags struct {
	address   string
	tokenFile string
	ca        string
	json      bool
}

func (f *adminFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.address, "admin", defaultAdmin, "`URL` of the admin API: also host:port, or unix:/path")
	cmd.Flags().StringVar(&f.tokenFile, "token-file", "", "`file` with the operator's token (default is the variable "+adminTokenVariable+")")
	cmd.Flags().StringVar(&f.ca, "ca", "", "`file` with the authorities to trust, as PEM, for an https:// address (default those of this machine)")
	cmd.Flags().BoolVar(&f.json, "json", false, "print the daemon's answer as it is")
}

// adminClient calls the admin API. Its fields are set by open.
type adminClient struct {
	http  *http.Client
	shown string // the address, for messages
	base  string // of URLs
	token string
	from  string // where the token was read, for messages
}

// open returns a client. Whoever gets one calls its close.
func (f *adminFlags) open(cmd *cobra.Command) (*adminClient, error) {
	secure, err := authorities(cmd, f.ca)
	if err != nil {
		return nil, err
	}
	c := &adminClient{shown: f.address, from: adminTokenVariable}
	transport := &http.Transport{TLSClientConfig: secure, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10}
	if c.base, err = adminBase(cmd, f.address, secure, transport); err != nil {
		return nil, err
	}
	if c.token, err = f.token(cmd); err != nil {
		return nil, err
	}
	if f.tokenFile != "" {
		c.from = f.tokenFile
	}
	c.http = &http.Client{
		Transport: transport, Timeout: adminTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the token is for this address only
	}
	return c, nil
}

// adminBase returns the prefix of URLs for an address, and prepares the transport for it.
func adminBase(cmd *cobra.Command, address string, secure *tls.Config, transport *http.Transport) (string, error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if path == "" {
			return "", misused(cmd, fmt.Sprintf("--admin %q: after unix: there must be the path of a socket", address))
		}
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
		return "http://localhost", nil
	}
	base := address
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	u, err := url.Parse(base)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil:
		return "", misused(cmd, fmt.Sprintf("--admin %q: must be like http://127.0.0.1:8080, host:port or unix:/path", address))
	case secure != nil && u.Scheme == "http":
		return "", misused(cmd, fmt.Sprintf("--admin %q: must begin with https:// for --ca", address))
	}
	return strings.TrimRight(base, "/"), nil
}

// token returns the operator's token, "" if there is none.
func (f *adminFlags) token(cmd *cobra.Command) (string, error) {
	if f.tokenFile == "" {
		return strings.TrimSpace(os.Getenv(adminTokenVariable)), nil
	}
	text, err := os.ReadFile(f.tokenFile)
	if err != nil {
		return "", misused(cmd, fmt.Sprintf("--token-file: %v", err))
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", misused(cmd, fmt.Sprintf("--token-file: %s must have a token and nothing else", f.tokenFile))
	}
	return token, nil
}

func (c *adminClient) close() { c.http.CloseIdleConnections() }

// adminError is a call that the daemon refused.
type adminError struct {
	status  int
	problem string
}

func (e *adminError) Error() string { return e.problem }

// call sends a request and returns the answer. A body that is not nil is sent as JSON. The path has what
// it needs escaped.
func (c *adminClient) call(ctx context.Context, method, path string, query url.Values, body any) ([]byte, error) {
	var send io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		send = bytes.NewReader(text)
	}
	target := c.base + "/admin/v1/" + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, send)
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, c.unreachable(ctx, err)
	case len(answer) > maxAnswer:
		return nil, fmt.Errorf("the answer of %s has more than %d MiB", c.shown, maxAnswer>>20)
	case resp.StatusCode != http.StatusOK:
		return nil, c.refused(resp, answer)
	}
	return answer, nil
}

// unreachable explains why there was no answer.
func (c *adminClient) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if bad, ok := errors.AsType[*url.Error](err); ok {
		err = bad.Err // it has the whole URL, with the key
	}
	hint := ""
	_, untrusted := errors.AsType[x509.UnknownAuthorityError](err)
	switch {
	case untrusted:
		hint = "; trust the authority that signed it by --ca FILE"
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, os.ErrNotExist):
		hint = "; start a daemon with 'weir serve', or say by --admin URL where it is"
	}
	return fmt.Errorf("cannot reach the daemon at %s: %w%s", c.shown, err, hint)
}

// refused explains an answer that is an error.
func (c *adminClient) refused(resp *http.Response, answer []byte) error {
	var p struct {
		Detail string `json:"detail"`
	}
	isProblem := strings.HasPrefix(resp.Header.Get("Content-Type"), "application/problem+json") && json.Unmarshal(answer, &p) == nil && p.Detail != ""
	e := &adminError{status: resp.StatusCode, problem: visible(p.Detail)}
	switch {
	case resp.StatusCode == http.StatusUnauthorized && c.token == "":
		e.problem = fmt.Sprintf("%s wants an operator's token: set %s, or --token-file FILE", c.shown, adminTokenVariable)
	case resp.StatusCode == http.StatusUnauthorized:
		e.problem = fmt.Sprintf("%s does not know the token of %s; admin.tokens of its configuration has those that it knows", c.shown, c.from)
	case !isProblem:
		e.problem = fmt.Sprintf("%s answered %d and not as the admin API does; is it the address of a daemon?", c.shown, resp.StatusCode)
	case resp.StatusCode == http.StatusNotFound && strings.HasSuffix(p.Detail, "GET / shows what is"): // that is the API for clients
		e.problem = fmt.Sprintf("the admin API is not at %s; say by --admin URL where the daemon has its admin listener", c.shown)
	}
	return e
}

// get calls a path and decodes the answer into out.
func (c *adminClient) get(ctx context.Context, path string, query url.Values, out any) ([]byte, error) {
	answer, err := c.call(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return nil, err
	}
	return answer, c.decode(answer, out)
}

// decode reads an answer.
func (c *adminClient) decode(answer []byte, out any) error {
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("the answer of %s is not the admin API's: %w", c.shown, err)
	}
	return nil
}

// namePolicies adds the policies there are to an error about one that there is not.
func (c *adminClient) namePolicies(ctx context.Context, policy string, err error) error {
	e, ok := errors.AsType[*adminError](err)
	if !ok || e.status != http.StatusNotFound {
		return err
	}
	var list struct {
		Policies []struct {
			Name string `json:"name"`
		} `json:"policies"`
	}
	if _, other := c.get(ctx, "policies", nil, &list); other != nil { // a token may have the scope write alone
		return err
	}
	var names []string
	for _, p := range list.Policies {
		if p.Name == policy { // something else is missing
			return err
		}
		names = append(names, visible(p.Name))
	}
	if len(names) == 0 {
		return fmt.Errorf("no policy is called %q; the daemon has none", policy)
	}
	return fmt.Errorf("no policy is called %q; there are: %s", policy, strings.Join(names, ", "))
}
