package adminapi

import (
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
	Initial   string         `json:"initial,omitempty"`
	MaxDebt   int64          `json:"max_debt,omitempty"`
}

// limitOf shows a limit of a policy that has been compiled.
func limitOf(p *ruleset.Policy, l ruleset.Limit) limitAnswer {
	compiled, err := weir.NewPolicy(p.Name, l.Limit)
	if err != nil { // it was compiled before
		panic(err)
	}
	normal := compiled.Limits()[0]
	out := limitAnswer{
		Name: compiled.LimitName(0), Rate: normal.Rate, Per: perText(normal.Per), Burst: normal.Burst, Algorithm: normal.Algorithm,
		By: l.By, Unit: l.Unit, Mode: l.Mode, OnError: normal.OnError, Initial: initialText(l.Initial), MaxDebt: normal.MaxDebt,
	}
	if out.Unit == "" {
		out.Unit = ruleset.Requests
	}
	if out.Mode == ruleset.ModeDefault {
		out.Mode = p.Mode
	}
	return out
}

// numbersAnswer is a limit of an override, with what was given. It is what a PUT takes.
type numbersAnswer struct {
	Name      string `json:"name"` // among the policy's limits
	Rate      int64  `json:"rate"`
	Per       string `json:"per,omitempty"`
	Burst     int64  `json:"burst,omitempty"`
	Algorithm string `json:"algorithm,omitempty"`
	Initial   string `json:"initial,omitempty"`
	MaxDebt   int64  `json:"max_debt,omitempty"`
	OnError   string `json:"on_error,omitempty"`
}

// numbersOf shows the limits of an override.
func numbersOf(limits []ruleset.Limit) []numbersAnswer {
	list := []numbersAnswer{}
	for _, l := range limits {
		n := numbersAnswer{Name: l.Name, Rate: l.Rate, Per: perText(l.Per), Burst: l.Burst, Initial: initialText(l.Initial), MaxDebt: l.MaxDebt}
		if n.Name == "" {
			n.Name = "main"
		}
		if l.Algorithm != weir.Auto {
			n.Algorithm = l.Algorithm.String()
		}
		if l.OnError != weir.OnError(0) {
			n.OnError = l.OnError.String()
		}
		list = append(list, n)
	}
	return list
}

func perText(p weir.Period) string {
	if p == (weir.Period{}) {
		return ""
	}
	return p.String()
}

// initialText returns "" for the default.
func initialText(f weir.Fill) string {
	if f == (weir.Fill{}) {
		return ""
	}
	return f.String()
}
