package target

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// A plan is a Config that makes sense, with its parts compiled. Nobody changes it
// after compile.
type plan struct {
	Config  // with defaults, and never Auto
	address address

	tail    template // of the URL
	headers []header
	body    template   // of JSON-RPC the whole request
	command []template // RESP
	db      string     // RESP: what to SELECT, if not empty
}

// compile reads a Config, and joins what is wrong with it.
func compile(c Config) (*plan, error) {
	p := &plan{Config: c.withDefaults()}
	var problems []error
	for _, read := range []func() error{
		p.readNumbers, p.readURL, p.readHeaders, p.readMethod, p.readBody, p.readCommand, p.readForeign,
	} {
		if err := read(); err != nil {
			problems = append(problems, err)
		}
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return p, nil
}

func (p *plan) readNumbers() error {
	switch {
	case p.Connections < 0:
		return fmt.Errorf("target: Connections %d: must be at least 1", p.Connections)
	case p.Timeout < 0:
		return fmt.Errorf("target: Timeout %v: must be positive", p.Timeout)
	}
	return nil
}

// readURL also settles the protocol, which everything after it depends on.
func (p *plan) readURL() error {
	if p.Protocol < Auto || p.Protocol > RESP {
		return fmt.Errorf("target: Protocol %v: is unknown", p.Protocol)
	}
	var err error
	if p.address, err = parseAddress(p.URL); err != nil {
		return fmt.Errorf("target: URL: %w", err)
	}
	if !slices.Contains(p.Protocol.schemes(), p.address.scheme) {
		return fmt.Errorf("target: URL: begins with %s://, but Protocol %v needs %s://",
			p.address.scheme, p.Protocol, strings.Join(p.Protocol.schemes(), ":// or "))
	}
	if p.Protocol == Auto {
		p.Protocol = protocolOf(p.address.scheme)
	}
	if err := p.readTail(); err != nil {
		return fmt.Errorf("target: URL: %w", err)
	}
	return nil
}

// readTail reads path and query.
func (p *plan) readTail() error {
	switch p.Protocol {
	case GRPC:
		return p.readGRPCTail()
	case RESP:
		return p.readRedisTail()
	}
	var err error
	if p.tail, err = parseTemplate(p.address.tail); err != nil {
		return fmt.Errorf("has a variable: %w", err)
	}
	if strings.Contains(p.tail.text(newVars(p.Seed, 0)), " ") {
		return errors.New("has a space in its path or query; write %20")
	}
	_, err = p.parseURL(newVars(p.Seed, 0))
	return err
}

func (p *plan) readGRPCTail() error {
	switch {
	case p.address.user != nil:
		return errors.New("has a user; with gRPC, credentials are a header")
	case p.address.tail != "" && p.address.tail != "/":
		return errors.New("has a path or query; with gRPC, what to call is Method")
	}
	return nil
}

func (p *plan) readRedisTail() error {
	if u := p.address.user; u != nil {
		if password, _ := u.Password(); password == "" {
			return errors.New("has a user, but no password")
		}
	}
	db := strings.TrimPrefix(p.address.tail, "/")
	if _, err := strconv.ParseUint(db, 10, 31); db != "" && err != nil {
		return errors.New("has a path that is not the number of a database, such as /2")
	}
	p.db = db
	return nil
}

// parseURL returns the URL of one operation, without a user.
func (p *plan) parseURL(v *vars) (*url.URL, error) {
	u, err := url.Parse(p.address.scheme + "://" + p.address.given + p.tail.text(v))
	if e, ok := errors.AsType[*url.Error](err); ok {
		return nil, e.Err // e quotes all of it
	}
	return u, err
}

func (p *plan) readMethod() error {
	switch {
	case p.Protocol == GRPC:
		return p.readGRPCMethod()
	case p.Protocol == JSONRPC && p.Method == "":
		return errors.New("target: Method: is missing; JSON-RPC needs one")
	case p.Protocol == JSONRPC && strings.Contains(p.Method, "{{"):
		return errors.New("target: Method: cannot contain variables")
	case p.Protocol == HTTP1 || p.Protocol == HTTP2:
		return p.readHTTPMethod()
	}
	return nil
}

func (p *plan) readHTTPMethod() error {
	if p.Method == "" && p.Body == "" {
		p.Method = "GET"
	}
	if p.Method == "" {
		p.Method = "POST"
	}
	if !isToken(p.Method) || p.Method == "CONNECT" {
		return fmt.Errorf("target: Method %.40q: is not a method that can be called", p.Method)
	}
	return nil
}

func (p *plan) readGRPCMethod() error {
	service, method, ok := strings.Cut(strings.TrimPrefix(p.Method, "/"), "/")
	if !ok || service == "" || method == "" || strings.ContainsAny(method, "/ ") {
		return fmt.Errorf(`target: Method %.80q: must be "package.Service/Method"`, p.Method)
	}
	p.Method = service + "/" + method
	return nil
}

func (p *plan) readBody() error {
	body, err := parseTemplate(p.Body)
	if err != nil {
		return fmt.Errorf("target: Body: has a variable: %w", err)
	}
	p.body = body
	switch p.Protocol {
	case JSONRPC:
		return p.wrapParams()
	case GRPC:
		return p.checkMessage()
	}
	return nil
}

// wrapParams makes the request of JSON-RPC. It joins segments, not text, so that
// nothing in Method is taken for a variable.
func (p *plan) wrapParams() error {
	method, err := json.Marshal(p.Method)
	if err != nil {
		return fmt.Errorf("target: Method: %w", err)
	}
	params := p.body
	p.body = template{
		{kind: literal, text: `{"jsonrpc":"2.0","id":`},
		{kind: seqVar},
		{kind: literal, text: `,"method":` + string(method)},
	}
	if len(params) > 0 {
		text := strings.TrimSpace(params.text(newVars(p.Seed, 0)))
		if !json.Valid([]byte(text)) || text[0] != '[' && text[0] != '{' {
			return errors.New("target: Body: JSON-RPC needs an array or an object as params; with its variables replaced this is none")
		}
		p.body = append(p.body, segment{kind: literal, text: `,"params":`})
		p.body = append(p.body, params...)
	}
	p.body = append(p.body, segment{kind: literal, text: "}"})
	return nil
}

// checkMessage looks at the JSON of a gRPC request. Whether it suits the method is
// known when the method is.
func (p *plan) checkMessage() error {
	if len(p.body) == 0 {
		p.body = template{{kind: literal, text: "{}"}}
	}
	if !json.Valid([]byte(p.body.text(newVars(p.Seed, 0)))) {
		return errors.New("target: Body: gRPC needs the JSON of a message; with its variables replaced this is none")
	}
	return nil
}

// endless are commands of Redis that do not have one reply each.
var endless = []string{"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "MONITOR", "SYNC", "PSYNC", "QUIT"}

func (p *plan) readCommand() error {
	if p.Protocol != RESP {
		return nil
	}
	if len(p.Command) == 0 || p.Command[0] == "" {
		return errors.New("target: Command: is missing; RESP needs one")
	}
	if slices.Contains(endless, strings.ToUpper(p.Command[0])) {
		return fmt.Errorf("target: Command %s: does not have one reply for each time it is sent", strings.ToUpper(p.Command[0]))
	}
	for i, part := range p.Command {
		t, err := parseTemplate(part)
		if err != nil {
			return fmt.Errorf("target: Command[%d]: has a variable: %w", i, err)
		}
		p.command = append(p.command, t)
	}
	return nil
}

// readForeign refuses settings of other protocols, which would have no effect.
func (p *plan) readForeign() error {
	var foreign []string
	add := func(name string, given, has bool) {
		if given && !has {
			foreign = append(foreign, name)
		}
	}
	add("Command", len(p.Command) > 0, p.Protocol == RESP)
	add("Method", p.Method != "", p.Protocol != RESP)
	add("Headers", len(p.Headers) > 0, p.Protocol != RESP)
	add("Body", p.Body != "", p.Protocol != RESP)
	add("Descriptors", p.Descriptors != "", p.Protocol == GRPC)
	if len(foreign) == 0 || p.Protocol == Auto { // Auto: the URL is wrong, which was said
		return nil
	}
	return fmt.Errorf("target: %s: not used by Protocol %v", strings.Join(foreign, ", "), p.Protocol)
}
