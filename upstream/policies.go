package upstream

import "github.com/weirlimit/weir"

// Policies returns the limits of the endpoints, of those that have valid ones, as a pool puts them in force. It is for
// programs that apply many limits at once.
func (c Config) Policies() (list []*weir.Policy) {
	for _, e := range c.Endpoints {
		if len(e.Limits) == 0 {
			continue
		}
		if p, err := weir.NewPolicy(policyName(c.Name, e.Alias), e.Limits...); err == nil {
			list = append(list, p)
		}
	}
	return list
}
