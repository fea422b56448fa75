package weir

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimit/weir/algo"
)

// Class is a kind of work with a guaranteed share of a limit, such as "realtime" beside
// "backfill".
type Class struct {
	// Name identifies the class within its policy: 1 to 128 letters, digits or -_.:/
	Name string `json:"name"`

	// Guaranteed is how many units per Limit.Per the class always gets, for example 300 of
	// 500. 0 means that the class gets only what the others leave.
	Guaranteed int64 `json:"guaranteed"`

	// Burst is how much of its share the class may save up. The default is the limit's Burst
	// in proportion: Limit.Burst × Guaranteed / Limit.Rate, rounded down.
	Burst int64 `json:"burst,omitempty"`

	// NoBorrow means that the class never uses more than its own share. Its idle share is
	// lent to the others nevertheless.
	NoBorrow bool `json:"no_borrow,omitempty"`
}

// String returns the class in a few words, such as "realtime=300/600": guaranteed rate and burst.
func (c Class) String() string {
	s := fmt.Sprintf("%s=%d", c.Name, c.Guaranteed)
	if c.Burst != 0 {
		s += fmt.Sprintf("/%d", c.Burst)
	}
	if c.NoBorrow {
		s += "!"
	}
	return s
}

// Classes are the classes of a limit. The zero value has none. Values are comparable; make one
// with ClassesOf.
type Classes struct{ text string } // JSON of the list, "" for none

// ClassesOf returns the classes in the given order, at most eight. [NewPolicy] checks them.
func ClassesOf(classes ...Class) Classes {
	if len(classes) == 0 {
		return Classes{}
	}
	text, _ := json.Marshal(classes) // strings and numbers only
	return Classes{string(text)}
}

// List returns the classes in order.
func (c Classes) List() (list []Class) {
	if c.text != "" {
		_ = json.Unmarshal([]byte(c.text), &list) // ClassesOf has made it
	}
	return list
}

// MarshalJSON returns the classes as a list.
func (c Classes) MarshalJSON() ([]byte, error) {
	if c.text == "" {
		return []byte("null"), nil
	}
	return []byte(c.text), nil
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (c *Classes) UnmarshalJSON(data []byte) error {
	var list []Class
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	*c = ClassesOf(list...)
	return nil
}

// Class returns the policy for charges of a class: the same limits on the same state. For the
// name of no class it returns an error that wraps ErrInvalid. Charges of a policy whose classes
// have shares are of the class with the least, the last one of several, unless they name one.
func (p *Policy) Class(name string) (*Policy, error) {
	for _, c := range p.classes {
		if c.compiled.Class == name {
			return c, nil
		}
	}
	return nil, &classError{p, name}
}

// A classError says that a policy does not have a class.
type classError struct {
	policy *Policy
	class  string
}

func (e *classError) Error() string {
	if len(e.policy.classes) == 0 {
		return fmt.Sprintf("weir: policy %q has no classes, so none is called %q", e.policy.name, e.class)
	}
	return fmt.Sprintf("weir: policy %q has no class %q; it has %s", e.policy.name, e.class, strings.Join(e.policy.ClassNames(), ", "))
}

// Unwrap returns ErrInvalid.
func (e *classError) Unwrap() error { return ErrInvalid }

// ClassNames returns the names of the policy's classes, in order.
func (p *Policy) ClassNames() (names []string) {
	for _, c := range p.classes {
		names = append(names, c.compiled.Class)
	}
	return names
}

// ClassName returns the class that charges of this policy are of, "" for none.
func (p *Policy) ClassName() string { return p.compiled.Class }

// compileClasses makes the policies of the classes of p, which is compiled otherwise.
func (p *Policy) compileClasses() {
	list := p.classList()
	if len(list) > 0 {
		p.compiled.Class = defaultClass(list)
	} else {
		list = p.pacedOnly()
	}
	if len(list) == 0 {
		return
	}
	views := make([]*Policy, len(list))
	for i, c := range list {
		view := *p
		view.compiled.Class, view.compiled.Serial = c.Name, serials.Add(1)
		view.classes = views
		views[i] = &view
	}
	p.classes = views
}

// classList returns the classes of the limit that has some.
func (p *Policy) classList() []Class {
	for _, l := range p.limits {
		if l.Classes != (Classes{}) {
			return l.Classes.List()
		}
	}
	return nil
}

// pacedOnly returns the classes of a policy that only paces them.
func (p *Policy) pacedOnly() (list []Class) {
	for _, l := range p.limits {
		for _, name := range l.pacedClasses() {
			if !slices.ContainsFunc(list, func(c Class) bool { return c.Name == name }) {
				list = append(list, Class{Name: name})
			}
		}
	}
	return list
}

// defaultClass returns the class of charges that name none: that with the least guaranteed
// share, the last of several, so that such charges never use a larger share by mistake.
func defaultClass(list []Class) string {
	least := list[0]
	for _, c := range list {
		if c.Guaranteed <= least.Guaranteed {
			least = c
		}
	}
	return least.Name
}

// sameClass returns the policy of p's class among other limits: of the class with that name, or
// o itself if there is none.
func (p *Policy) sameClass(o *Policy, err error) (*Policy, error) {
	if err != nil || p.compiled.Class == "" {
		return o, err
	}
	if view, err := o.Class(p.compiled.Class); err == nil {
		return view, nil
	}
	return o, nil
}

// lendingRule returns the rule of a normal limit with classes.
func (l Limit) lendingRule(fill algo.Fill) (algo.Rule, error) {
	var shares []algo.Share
	for _, c := range l.Classes.List() {
		if !checkName(c.Name) {
			return nil, badField("classes", fmt.Sprintf("%q", c.Name), nameProblem)
		}
		if c.Burst == 0 && c.Guaranteed > 0 && l.Rate > 0 {
			c.Burst = mulDiv(l.Burst, c.Guaranteed, l.Rate)
		}
		shares = append(shares, algo.Share{Class: c.Name, Rate: c.Guaranteed, Burst: c.Burst, NoBorrow: c.NoBorrow})
	}
	return algo.NewLending(l.Rate, int64(l.Per.every), l.Burst, l.MaxDebt, fill, shares)
}

// calendarRule returns the rule of a normal limit per calendar period.
func (l Limit) calendarRule(fill algo.Fill) (algo.Rule, error) {
	cal := algo.NewCalendar(l.Per.unit, l.Per.zone)
	if paced := l.pacedClasses(); len(paced) > 0 {
		return algo.NewPaced(l.Rate, cal, fill, paced)
	}
	return algo.NewCalendarFixed(l.Rate, cal, fill)
}

// pacedClasses returns the names in Limit.Pace.
func (l Limit) pacedClasses() []string {
	if l.Pace == "" {
		return nil
	}
	names := strings.Split(l.Pace, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	return names
}

// checkPace refuses a limit i that paces what is no class. The classes may be another policy's, if
// this one has none.
func (p *Policy) checkPace(i int) error {
	list := p.classList()
	for _, name := range p.limits[i].pacedClasses() {
		if !checkName(name) {
			return badField("pace", fmt.Sprintf("%q", name), nameProblem)
		}
		if len(list) > 0 && !slices.ContainsFunc(list, func(c Class) bool { return c.Name == name }) {
			return badField("pace", fmt.Sprintf("%q", name), "is no class of the policy")
		}
	}
	return nil
}
