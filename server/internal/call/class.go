package call

import (
	"strings"

	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/strictjson"
)

// Own makes the caller the client of a query under a rule, and refuses a class that the caller may
// not use. If the query names none, and the caller may not use the default, it gets the class of the
// rule that the caller may use, if that is only one.
func (c Caller) Own(rule *ruleset.Rule, q *ruleset.Query) (err *Error) {
	q.Client, q.Alone = c.Name(), c.State.Authenticator.Clients.Len() == 0
	if c.Client == nil || len(c.Client.Grants.Classes) == 0 {
		return nil
	}
	if q.Class == "" && !c.Client.Grants.MayClass(rule.DefaultClass()) {
		q.Class, err = c.onlyClass(rule)
		return err
	}
	if q.Class != "" && !c.State.Authenticator.MayClass(c.Client, q.Class) {
		return c.forbidden("class", q.Class)
	}
	return nil
}

// onlyClass returns the class of a rule that a caller may use who may not use the default, "" if the
// rule has no classes.
func (c Caller) onlyClass(rule *ruleset.Rule) (string, *Error) {
	if len(rule.Classes()) == 0 {
		return "", nil
	}
	var granted []string
	for _, class := range rule.Classes() {
		if c.Client.Grants.MayClass(class) {
			granted = append(granted, class)
		}
	}
	if len(granted) == 1 {
		return granted[0], nil
	}
	c.State.Authenticator.MayClass(c.Client, rule.DefaultClass()) // records that it may not
	if len(granted) == 0 {
		return "", Errorf(Forbidden, "the client %s may not use any class of the policy %s", c.Client.Name, strictjson.Quote(rule.Name()))
	}
	return "", Errorf(Forbidden, "the client %s may not use the class %s, which a request without a class is of: name one of %s",
		c.Client.Name, strictjson.Quote(rule.DefaultClass()), strings.Join(granted, ", "))
}
