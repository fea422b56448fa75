package budget

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// Presets returns the names of the presets.
func Presets() []string { return []string{"alchemy-free"} }

// Preset returns what a preset consists of: limits, classes and costs.
func Preset(name string) (Config, error) {
	if !slices.Contains(Presets(), name) {
		return Config{}, fmt.Errorf("budget: no preset is called %q; there are %s", name, strings.Join(Presets(), ", "))
	}
	return alchemyFree()
}

// alchemyFree is the free plan of Alchemy: 500 throughput units per second, over ten seconds, and 30
// million billed units a month.
//
// The vendor's text on the ten seconds can be read in two ways: a bucket of 5,000 that refills at 500
// per second, or at most 5,000 in any ten seconds. The preset meets both, also if calls are up to
// 100 ms longer on their way than others:
//
//   - "window" is 5,000 in any 10.1 s, exactly: ten seconds at the provider are at most 10.1 s here.
//   - "main" is 485 per second with a burst of 1,250, far below the bucket. Its rate is a little less
//     than the window's, so that the classes' shares decide, and not who comes first when the window is
//     full.
//
// Together they use 97 % of the provider's quota. So beside a class that takes all it can, the window has
// room for about 80 units at once. A larger call of another class, such as eth_sendRawTransaction with 250,
// recalls what that class lends: it waits about as long as its units take at the class's guaranteed rate.
//
// The burst lets each class make calls of up to 500 units, such as eth_getBlockReceipts; the few that cost more,
// such as traces, need a larger one. Its price: who uses it at once after an idle time fills the window early, and
// then nobody gets anything for up to 2.4 s, once in ten seconds and less each time. A burst of 700 makes that 1.2 s.
//
// While the store is unavailable, "main" alone decides, by this process's share: "window" fails open. So the
// store is not charged for the whole outage afterwards, and nobody has to wait for as long again. The bucket is
// met then, too; in ten seconds after an idle time, about 6,100 units may pass: the burst and 485 per second. If the
// burst was used just before the outage, they are about 7,350, because each process has its share of another one.
func alchemyFree() (Config, error) {
	costs, err := BuiltinTable("alchemy")
	if err != nil {
		return Config{}, err
	}
	return Config{
		Costs:   costs,
		Classes: defaultClasses,
		Limits: []ruleset.Limit{
			{Unit: "throughput", Limit: weir.Limit{Rate: 485, Per: weir.Every(time.Second), Burst: 1250}},
			{Unit: "throughput", Limit: weir.Limit{Name: "window", Rate: 5000, Per: weir.Every(alchemyWindow), Algorithm: weir.SlidingLog, OnError: weir.FailOpen}},
			{Unit: "cu", Limit: weir.Limit{Name: "month", Rate: 30_000_000, Per: weir.Calendar(weir.Month, nil)}},
		},
	}, nil
}

// alchemyWindow is the provider's ten seconds, and a tenth of a second for the network.
const alchemyWindow = 10*time.Second + 100*time.Millisecond
