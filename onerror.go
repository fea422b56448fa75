package weir

import "fmt"

// OnError is what a limit does while the store that counts it cannot be asked.
type OnError uint8

// What a limit can do then.
const (
	OnErrorDefault OnError = iota // as the limiter is configured
	FailLocal                     // this process admits its share of the limit: the fleet's divided by the number of nodes
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

// ParseOnError is the inverse of String.
func ParseOnError(name string) (OnError, error) {
	for i, n := range onErrorNames {
		if n == name {
			return OnError(i), nil
		}
	}
	return 0, fmt.Errorf("weir: %q is nothing to do on an error; there are %q", name, onErrorNames[1:])
}

// MarshalText returns String.
func (o OnError) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText is ParseOnError.
func (o *OnError) UnmarshalText(text []byte) (err error) {
	*o, err = ParseOnError(string(text))
	return err
}
