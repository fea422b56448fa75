package mockrpc

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// The bounds of faults.
const (
	maxFaults     = 100
	maxDelay      = 10 * time.Minute
	maxRetryAfter = 366 * 24 * time.Hour
)

// Fault is what goes wrong with some requests. Of Status, Refusal, Reset and Garbage there is at most one,
// except that garbage may have a status. Of several faults that match a request all delay it, and the first
// that ends it counts.
type Fault struct {
	// Key, Account and Method say which requests: those with a key, of an account, and with a call of a
	// method. "" is any.
	Key     string `json:"key,omitempty"`
	Account string `json:"account,omitempty"`
	Method  string `json:"method,omitempty"`

	// Status answers with this status and a line of text, as a proxy does.
	Status int `json:"status,omitempty"`

	// Refusal answers as vendors refuse calls, see Refusals, for example "daily-quota".
	Refusal string `json:"refusal,omitempty"`

	// InBody sends the error of a refusal with the status 200, one for each call.
	InBody bool `json:"in_body,omitempty"`

	// Reset resets the connection instead of a response.
	Reset bool `json:"reset,omitempty"`

	// Garbage answers with the beginning of a response.
	Garbage bool `json:"garbage,omitempty"`

	// Execute means that the calls are charged and executed, and only the response is lost.
	Execute bool `json:"execute,omitempty"`

	// RetryAfter is when a status or a refusal asks to come back, rounded up to seconds.
	RetryAfter time.Duration `json:"-"`

	// Delay is how much longer the response takes.
	Delay time.Duration `json:"-"`

	// ChainID is the chain that the provider pretends to be.
	ChainID uint64 `json:"chain_id,omitempty"`

	// Lag is how many blocks the head is behind.
	Lag uint64 `json:"lag,omitempty"`

	// Count is how many requests have the fault, then it is removed. 0 is any number.
	Count int `json:"count,omitempty"`

	// On and Off make the provider flap: the fault is in force for On, then not for Off, and so on.
	On  time.Duration `json:"-"`
	Off time.Duration `json:"-"`
}

// Validate returns an error for each field that is wrong, by its name in JSON.
func (f Fault) Validate() error {
	var problems problems
	if f.Status != 0 && (f.Status < 200 || f.Status > 599) {
		problems.add(f.Status, "must be between 200 and 599", "status")
	}
	if r, known := refusals[f.Refusal]; f.Refusal != "" && !known {
		problems.add(f.Refusal, "there are "+strings.Join(Refusals(), ", "), "refusal")
	} else if f.InBody && r.code == 0 {
		problems.add(f.InBody, "is for a refusal with an error of JSON-RPC", "in_body")
	}
	problems.checkTime(f.RetryAfter, maxRetryAfter, "retry_after")
	problems.checkTime(f.Delay, maxDelay, "delay")
	problems.checkTime(f.On, maxRetryAfter, "on")
	problems.checkTime(f.Off, maxRetryAfter, "off")
	if (f.On == 0) != (f.Off == 0) {
		problems.add(nil, "must both be set, or none", "on, off")
	}
	if f.Count < 0 {
		problems.add(f.Count, "must not be negative", "count")
	}
	f.checkEffects(&problems)
	return errors.Join(problems...)
}

func (f Fault) checkEffects(problems *problems) {
	ends := 0
	for _, effect := range []bool{f.Status != 0 && !f.Garbage, f.Refusal != "", f.Reset, f.Garbage} {
		if effect {
			ends++
		}
	}
	if ends > 1 {
		problems.add(nil, "at most one of them", "status, refusal, reset, garbage")
	}
	if ends == 0 && f.Delay == 0 && f.ChainID == 0 && f.Lag == 0 {
		problems.add(nil, "at least one of them", "status, refusal, reset, garbage, delay, chain_id, lag")
	}
	if f.RetryAfter != 0 && f.Status == 0 && f.Refusal == "" {
		problems.add(f.RetryAfter, "is for a status or a refusal", "retry_after")
	}
	if f.Execute && !f.ends() {
		problems.add(f.Execute, "is for a fault that ends a request", "execute")
	}
}

func (p *problems) checkTime(d, most time.Duration, path ...any) {
	if d < 0 || d > most {
		p.add(d, fmt.Sprintf("must be between 0 and %v", most), path...)
	}
}

// ends reports whether the fault replaces the response.
func (f Fault) ends() bool { return f.Status != 0 || f.Refusal != "" || f.Reset || f.Garbage }

// fault is a Fault that was added.
type fault struct {
	Fault
	added time.Duration
	left  int // requests that still have it, if Count is set
}

// effect is what the faults do to a request.
type effect struct {
	end     *Fault // replaces the response, nil if none does
	delay   time.Duration
	chainID uint64 // 0 for the provider's
	lag     uint64
}

// faults are those in force. The provider's lock guards them.
type faults struct {
	last int64 // id
	byID map[int64]*fault
}

func (s *faults) add(f Fault, now time.Duration) (int64, error) {
	if err := f.Validate(); err != nil {
		return 0, err
	}
	if len(s.byID) == maxFaults {
		return 0, fmt.Errorf("mockrpc: there are %d faults: remove one before", maxFaults)
	}
	if s.byID == nil {
		s.byID = make(map[int64]*fault)
	}
	s.last++
	s.byID[s.last] = &fault{Fault: f, added: now, left: f.Count}
	return s.last, nil
}

// apply returns what the faults do to a request, and counts it.
func (s *faults) apply(now time.Duration, from *caller, methods []string) (e effect) {
	for _, id := range slices.Sorted(maps.Keys(s.byID)) {
		f := s.byID[id]
		if !f.matches(now, from, methods) || f.ends() && e.end != nil {
			continue
		}
		e.delay = min(e.delay+f.Delay, maxDelay)
		e.chainID, e.lag = cmp.Or(e.chainID, f.ChainID), max(e.lag, f.Lag)
		if f.ends() {
			e.end = &f.Fault
		}
		if f.left--; f.left == 0 {
			delete(s.byID, id)
		}
	}
	return e
}

func (f *fault) matches(now time.Duration, from *caller, methods []string) bool {
	switch {
	case f.Key != "" && f.Key != from.key, f.Account != "" && f.Account != from.account.name:
		return false
	case f.Method != "" && !slices.Contains(methods, f.Method):
		return false
	}
	return f.On == 0 || (now-f.added)%(f.On+f.Off) < f.On
}
