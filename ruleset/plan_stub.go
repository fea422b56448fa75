package ruleset

// Plan is a named set of limits.
type Plan struct {
	Name   string
	Limits []Limit
}
