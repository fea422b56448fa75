package services

import (
	"slices"

	"github.com/weirlimit/weir/bench/internal/harness"
)

// A contender is a server that is asked by a protocol.
type contender struct {
	name     string // as in harness.Subject
	kind     harness.Kind
	server   kind
	protocol protocol
	width    int      // keys in one request
	floor    string   // who answers the same and decides nothing
	only     []string // the figures that are judged; none of them if there are none
}

// The names of those that others are compared with.
const (
	checkName     = "weir Check, memory"
	envoyName     = "weir Envoy, memory"
	ratelimitName = "envoyproxy/ratelimit"
	checkFloor    = "empty gRPC, Check"
	envoyFloor    = "empty gRPC, Envoy"
	pingName      = "empty RESP, PING"
)

// inMemory names the one that answers the same without Redis.
func (c contender) inMemory() string {
	if c.floor == checkFloor {
		return checkName
	}
	return envoyName
}

// subject is the contender as a survey has it.
func (c contender) subject() harness.Subject {
	s := harness.Subject{Name: c.name, Kind: c.kind, Only: c.only, NoGoal: len(c.only) == 0}
	if c.server == ratelimit {
		s.Module = Ratelimit
	}
	return s
}

var (
	viaCheck = overGRPC(newCheckAsker)
	viaEnvoy = overGRPC(newEnvoyAsker)
	viaPing  = overRESP(func(string) command { return ping })
)

// callersOfGRPC are asked one decision at a time. Leases are for Check: Envoy's limits are
// windows, which are not leased.
func callersOfGRPC() []contender {
	judged := []string{timesFloor, timesRatelimit, cpuTimesFloor}
	return []contender{
		{checkName, harness.Weir, memory, viaCheck, 1, checkFloor, judged},
		{envoyName, harness.Weir, memory, viaEnvoy, 1, envoyFloor, judged},
		{"weir Check, Redis leased", harness.Weir, leased, viaCheck, 1, checkFloor, []string{timesMemory}},
		{"weir Envoy, Redis async", harness.Weir, async, viaEnvoy, 1, envoyFloor, nil},
		{"weir Envoy, Redis exact", harness.Weir, exact, viaEnvoy, 1, envoyFloor, nil},
		peer(),
		{checkFloor, harness.Floor, empty, viaCheck, 1, checkFloor, nil},
		{envoyFloor, harness.Floor, empty, viaEnvoy, 1, envoyFloor, nil},
	}
}

func peer() contender {
	return contender{ratelimitName, harness.Peer, ratelimit, viaEnvoy, 1, envoyFloor, nil}
}

// callersOfRESP are asked by pipelines of some length.
func callersOfRESP(pipeline int) []contender {
	judged := []string{timesPing, timesRatelimit}
	return []contender{
		{"weir WEIR.CHECK, memory", harness.Weir, memory, overRESP(check), pipeline, pingName, judged},
		{"weir CL.THROTTLE, memory", harness.Weir, memory, overRESP(func(string) command { return throttle }), pipeline, pingName, judged},
		{pingName, harness.Floor, empty, viaPing, pipeline, pingName, nil},
		{"empty RESP, WEIR.CHECK", harness.Floor, empty, overRESP(check), pipeline, pingName, nil},
	}
}

// batchWidth is how many checks a batch has.
const batchWidth = 100

// callersOfBatches are asked for many decisions at a time, beside one that is not.
func callersOfBatches() []contender {
	return []contender{
		{"weir CheckBatch of 100", harness.Weir, memory, viaCheck, batchWidth, "", []string{timesSingle}},
		{checkName, harness.Weir, memory, viaCheck, 1, "", nil},
	}
}

// without returns the contenders but for one server.
func without(all []contender, k kind) []contender {
	return slices.DeleteFunc(all, func(c contender) bool { return c.server == k })
}
