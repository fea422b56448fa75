package mockrpc

import "maps"

// Counts are of calls: those of a batch count one by one. What was received was served, refused or has failed.
type Counts struct {
	Received int64            `json:"received"`
	Served   int64            `json:"served"`  // answered by the method, also with an error of its own
	Refused  map[string]int64 `json:"refused"` // by class: rate, quota, denied, overloaded
	Failed   int64            `json:"failed"`  // lost to a fault: another status, a reset, garbage
	Units    int64            `json:"units"`   // charged
}

// Stats is what a provider has counted.
type Stats struct {
	Preset       string            `json:"preset"`
	Unit         string            `json:"unit"` // of what is charged
	Total        Counts            `json:"total"`
	Accounts     []AccountStats    `json:"accounts"`
	Keys         []KeyStats        `json:"keys"`
	Methods      map[string]Counts `json:"methods"` // those that the provider does not know are "other"
	Transactions TransactionStats  `json:"transactions"`
	Unauthorized int64             `json:"unauthorized"` // requests with an unknown key
	Malformed    int64             `json:"malformed"`    // requests that are no JSON-RPC, or too large or too costly
}

// AccountStats is what an account has been charged.
type AccountStats struct {
	Name         string `json:"name"`
	Units        int64  `json:"units"`
	MaxUnits10s  int64  `json:"max_units_in_10s"` // the most in any ten seconds
	RatePerSec   int64  `json:"rate_per_second"`  // the limits, 0 for none
	RatePerMin   int64  `json:"rate_per_minute"`
	CurrentUnits int64  `json:"units_in_last_10s"`
}

// KeyStats are the counts of a key.
type KeyStats struct {
	Key      string `json:"key"`
	Account  string `json:"account"`
	Requests int64  `json:"requests"` // over HTTP

	// Early is how many of them came before the last Retry-After that the account was sent had passed. Requests
	// that were on their way meanwhile count, too: without latency there are none.
	Early int64 `json:"early"`

	Total   Counts            `json:"total"`
	Methods map[string]Counts `json:"methods"`
}

// TransactionStats are the transactions that were sent.
type TransactionStats struct {
	Executed   int64 `json:"executed"`
	Distinct   int64 `json:"distinct"`
	Duplicates int64 `json:"duplicates"` // executions after the first of each
}

// Tries returns how many requests have come, over all keys.
func (s Stats) Tries() (sum int64) {
	for _, k := range s.Keys {
		sum += k.Requests
	}
	return sum
}

func (c *Counts) add(other Counts) {
	c.Received += other.Received
	c.Served += other.Served
	c.Failed += other.Failed
	c.Units += other.Units
	if c.Refused == nil {
		c.Refused = make(map[string]int64)
	}
	for class, n := range other.Refused {
		c.Refused[class] += n
	}
}

// refuse counts a call that was refused, or has failed.
func (c *Counts) refuse(class string) {
	if class == classFailed {
		c.Failed++
		return
	}
	if c.Refused == nil {
		c.Refused = make(map[string]int64)
	}
	c.Refused[class]++
}

// row returns the name under which a method is counted.
func row(method string) string {
	if _, known := methods[method]; known {
		return method
	}
	return "other"
}

// Stats returns what was counted so far.
func (p *Provider) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.nowLocked()
	s := Stats{
		Preset: p.config.Preset, Unit: p.unit, Unauthorized: p.unauthorized, Malformed: p.malformed, Methods: make(map[string]Counts),
	}
	s.Total.add(Counts{})
	for i, a := range p.accounts {
		a.observed.expire(now)
		c := p.config.Accounts[i]
		s.Accounts = append(s.Accounts, AccountStats{a.name, a.units, a.observed.peak, c.Rate, c.PerMinute, a.observed.used})
	}
	for _, c := range p.callers {
		k := KeyStats{Key: c.key, Account: c.account.name, Requests: c.requests, Early: c.early, Methods: make(map[string]Counts)}
		k.Total.add(Counts{})
		for name, counts := range c.methods {
			one := *counts
			one.Refused = maps.Clone(one.Refused)
			k.Methods[name] = one
			k.Total.add(one)
			sum := s.Methods[name]
			sum.Refused = maps.Clone(sum.Refused)
			sum.add(one)
			s.Methods[name] = sum
		}
		s.Total.add(k.Total)
		s.Keys = append(s.Keys, k)
	}
	for _, t := range p.state.sent {
		s.Transactions.Executed += t.executions
		s.Transactions.Distinct++
	}
	s.Transactions.Duplicates = s.Transactions.Executed - s.Transactions.Distinct
	return s
}
