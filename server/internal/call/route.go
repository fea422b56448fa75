package call

import (
	"slices"
	"strings"

	"github.com/weirlimit/weir/server/internal/strictjson"
)

// MayUseRoute refuses clients that may not use a route of the gateway.
func (c Caller) MayUseRoute(name string) *Error {
	if !c.State.Authenticator.MayRoute(c.Client, name) {
		return c.forbidden("route", name)
	}
	return nil
}

// RouteClass returns the class of a request to a route whose budgets have some classes: the one that its header names.
// Without one, it is the only one that the caller may use; of several that the caller may use, the least urgent, which
// is "" if the caller may use all.
func (c Caller) RouteClass(classes, header []string) (string, *Error) {
	class := strings.Join(header, ",")
	if class != "" {
		return class, c.checkClass(classes, class)
	}
	if c.Client == nil || len(c.Client.Grants.Classes) == 0 || len(classes) == 0 {
		return "", nil
	}
	for _, class := range slices.Backward(classes) {
		if c.Client.Grants.MayClass(class) {
			return class, nil
		}
	}
	c.State.Authenticator.MayClass(c.Client, classes[len(classes)-1]) // records that it may not
	return "", Errorf(Forbidden, "the client %s may not use any class of the route, which has %s", c.Client.Name, strings.Join(classes, ", "))
}

// checkClass refuses a class that the caller may not use, and one that a route does not have.
func (c Caller) checkClass(classes []string, class string) *Error {
	switch {
	case !c.State.Authenticator.MayClass(c.Client, class):
		return c.forbidden("class", class)
	case len(classes) == 0:
		return Invalid("Weir-Class is %s, and the budgets of the route have no classes: leave it out", strictjson.Quote(class))
	case !slices.Contains(classes, class):
		return Invalid("Weir-Class is %s, and the budgets of the route have %s", strictjson.Quote(class), strings.Join(classes, ", "))
	}
	return nil
}
