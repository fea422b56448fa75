package weir

import "fmt"

// OnError is what a limit does while its store is unavailable. The zero value means what the
// limiter is configured to do.
type OnError uint8

// What a limit does while its store is unavailable.
const (
	FailLocal  OnError = iota + 1 // this process admits its share of the limit: the fleet's divided by the number of nodes
	FailOpen                      // every charge is admitted, without a bound
	FailClosed                    // every charge is refused, with Reason StoreDown
)

var onErrorNames = [...]string{"default", "local", "open", "closed"}

// String returns the name that configurations use, such as "local".
func (o OnError) String() string {
	if int(o) < len(onErrorNames) {
		return onErrorNames[o]
	}
	return fmt.Sprintf("on_error(%d)", uint8(o))
}

// parseOnError is the inverse of String.
func parseOnError(name string) (OnError, error) {
	for i, n := range onErrorNames {
		if n == name {
			return OnError(i), nil
		}
	}
	return 0, fmt.Errorf("weir: %q is nothing to do on an error; there are %q", name, onErrorNames[1:])
}

// MarshalText returns String.
func (o OnError) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (o *OnError) UnmarshalText(text []byte) (err error) {
	*o, err = parseOnError(string(text))
	return err
}
