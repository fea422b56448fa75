package adminapi

import (
	"cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// limitAnswer is a limit of a policy, with its defaults filled in.
type limitAnswer struct {
	Name      string         `json:"name"` // as headers have it
	Rate      int64          `json:"rate"`
	Per       string         `json:"per"` // "" for concurrency
	Burst     int64          `json:"burst"`
	Algorithm weir.Algorithm `json:"algorithm"`
	By        string         `json:"by"` // "" for the key
	Unit      string         `json:"unit"`
	Mode      ruleset.Mode   `json:"mode"`
	OnError   weir.OnError   `json:"on_error"`
	Initial   weir.Fill      `json:"initial,omitzero"`
	MaxDebt   int64          `json:"max_debt,omitempty"`
}

// limitOf shows a limit of a policy that has been compiled.
func limitOf(p *ruleset.Policy, l ruleset.Limit) limitAnswer {
	compiled, err := weir.NewPolicy(p.Name, l.Limit)
	if err != nil { // it was compiled before
		panic(err)
	}
	normal := compiled.Limits()[0]
	return limitAnswer{
		Name: compiled.LimitName(0), Rate: normal.Rate, Per: perText(normal.Per), Burst: normal.Burst, Algorithm: normal.Algorithm,
		By: l.By, Unit: cmp.Or(l.Unit, ruleset.Requests), Mode: cmp.Or(l.Mode, p.Mode), OnError: normal.OnError, Initial: l.Initial, MaxDebt: normal.MaxDebt,
	}
}

// numbersAnswer is a limit of an override, with what was given. It is what a PUT takes.
type numbersAnswer struct {
	Name      string         `json:"name"` // among the policy's limits
	Rate      int64          `json:"rate"`
	Per       string         `json:"per,omitempty"`
	Burst     int64          `json:"burst,omitempty"`
	Algorithm weir.Algorithm `json:"algorithm,omitzero"`
	Initial   weir.Fill      `json:"initial,omitzero"`
	MaxDebt   int64          `json:"max_debt,omitempty"`
	OnError   weir.OnError   `json:"on_error,omitzero"`
}

// numbersOf shows the limits of an override.
func numbersOf(limits []ruleset.Limit) []numbersAnswer {
	list := []numbersAnswer{}
	for _, l := range limits {
		list = append(list, numbersAnswer{
			Name: cmp.Or(l.Name, "main"), Rate: l.Rate, Per: perText(l.Per), Burst: l.Burst, Algorithm: l.Algorithm,
			Initial: l.Initial, MaxDebt: l.MaxDebt, OnError: l.OnError,
		})
	}
	return list
}

func perText(p weir.Period) string {
	if p == (weir.Period{}) {
		return ""
	}
	return p.String()
}
