package redisconn

import (
	"errors"

	"github.com/redis/rueidis"
)

// IsUnknown says whether a command may have been executed although it ended with err. It
// is false for replies of the server: our scripts fail before they write. It is false
// if no connection could be made, and if the Cluster has no node for the slot. It is true
// for everything else: a connection that broke, a reply that did not come in
// time, a client that was closed. Some of these commands never left, for example those with a
// context that had ended before, or those whose connection broke during the login.
func IsUnknown(err error) bool {
	var (
		reply  *rueidis.RedisError
		noDial *dialError
	)
	switch {
	case err == nil, errors.As(err, &reply), errors.As(err, &noDial), errors.Is(err, rueidis.ErrNoSlot):
		return false
	}
	return true
}
