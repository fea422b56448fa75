package main

import (
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
	"github.com/weirlimit/weir/bench/internal/keyed"
	"github.com/weirlimit/weir/bench/internal/middleware"
	"github.com/weirlimit/weir/bench/internal/overhttp"
	"github.com/weirlimit/weir/bench/internal/pacing"
	"github.com/weirlimit/weir/bench/internal/proxied"
	"github.com/weirlimit/weir/bench/internal/redisbacked"
	"github.com/weirlimit/weir/bench/internal/report"
	"github.com/weirlimit/weir/bench/internal/services"
	"github.com/weirlimit/weir/bench/internal/single"
)

// A part is what becomes a section of the report.
type part struct {
	section report.Section // without results
	cases   []harness.Case
	surveys []harness.Survey
}

// An extent is how much is measured where it is not time per call.
type extent struct {
	keyed keyed.Sizes
	paced time.Duration // how long it takes to see what pace a pacer keeps
	redis redisbacked.Sizes
	http  overhttp.Sizes

	middleware middleware.Sizes
	services   services.Sizes
	proxied    proxied.Sizes
}

var (
	wholeExtent = extent{keyed.Whole, pacing.Whole, redisbacked.Whole, overhttp.Whole, middleware.Whole, services.Whole, proxied.Whole}
	quickExtent = extent{keyed.Quick, pacing.Quick, redisbacked.Quick, overhttp.Quick, middleware.Quick, services.Quick, proxied.Quick}
)

// allParts returns everything there is to measure.
func allParts(x extent) []part {
	return []part{
		{
			section: report.Section{Title: "One limiter", Chart: "benchmarks.svg"},
			cases:   single.Cases(),
		},
		{
			section: report.Section{Title: "Many keys", Note: keyed.Note, Chart: "benchmarks-keyed.svg"},
			cases:   keyed.Cases(x.keyed),
			surveys: keyed.Surveys(x.keyed),
		},
		{
			section: report.Section{Title: "Pacing", Note: pacing.Note, Chart: "benchmarks-pacing.svg", ChartFigure: pacing.Achieved},
			cases:   pacing.Cases(),
			surveys: pacing.Surveys(x.paced),
		},
		{
			section: report.Section{Title: "Redis", Note: redisbacked.Note(), Chart: "benchmarks-redis.svg", ChartFigure: redisbacked.Decisions},
			surveys: redisbacked.Surveys(x.redis),
		},
		{
			section: report.Section{Title: "HTTP", Note: overhttp.Note, Chart: "benchmarks-http.svg", ChartFigure: overhttp.Requests},
			surveys: overhttp.Surveys(x.http),
		},
		{
			section: report.Section{Title: "Middleware", Note: middleware.Note, Chart: "benchmarks-middleware.svg", ChartFigure: middleware.Faster},
			surveys: middleware.Surveys(x.middleware),
		},
		{
			section: report.Section{Title: "Services", Note: services.Note(), Chart: "benchmarks-services.svg", ChartFigure: services.Requests},
			surveys: services.Surveys(x.services),
		},
		{
			section: report.Section{Title: "Gateway", Note: proxied.Note, Chart: "benchmarks-gateway.svg", ChartFigure: proxied.Requests},
			surveys: proxied.Surveys(x.proxied),
		},
	}
}

// selected returns the parts with the cases and surveys whose name matches, and
// no part that would be empty.
func selected(all []part, pattern string) ([]part, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	var parts []part
	for _, p := range all {
		chosen := part{section: p.section}
		for _, c := range p.cases {
			if re.MatchString(c.Name) {
				chosen.cases = append(chosen.cases, c)
			}
		}
		for _, s := range p.surveys {
			if re.MatchString(s.Name) {
				chosen.surveys = append(chosen.surveys, s)
			}
		}
		if chosen.size() > 0 {
			parts = append(parts, chosen)
		}
	}
	if len(parts) == 0 {
		return nil, fmt.Errorf("-run: no case matches %q", pattern)
	}
	return parts, nil
}

// size is how many cases and surveys the part has.
func (p part) size() int { return len(p.cases) + len(p.surveys) }

// measure goes through the parts one after the other and shows how far it is.
func measure(parts []part, s harness.Settings) ([]report.Section, error) {
	show := progress(os.Stderr)
	defer show("")
	done, all := 0, 0
	for _, p := range parts {
		all += p.size()
	}
	next := func(name string) func(step string) {
		done++
		begun := fmt.Sprintf("%d/%d %s: ", done, all, name)
		return func(step string) { show(begun + step) }
	}
	var sections []report.Section
	for _, p := range parts {
		section, err := p.measure(s, next)
		if err != nil {
			return nil, err
		}
		sections = append(sections, section)
	}
	return sections, nil
}

// measure makes the part's section. It calls next with the name of each case and
// survey, and what that returns with the steps of it.
func (p part) measure(s harness.Settings, next func(name string) func(step string)) (report.Section, error) {
	section := p.section
	for _, c := range p.cases {
		res, err := harness.Measure(c, s, next(c.Name))
		if err != nil {
			return report.Section{}, err
		}
		section.Results = append(section.Results, res)
	}
	for _, survey := range p.surveys {
		answers, err := harness.Ask(survey, next(survey.Name))
		if err != nil {
			return report.Section{}, err
		}
		section.Answers = append(section.Answers, answers)
	}
	return section, nil
}
