package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/faults/internal/history"
	"github.com/weirlimit/weir/faults/internal/rig"
)

// F13: the configuration is written again and again under load, right and wrong.
func TestReload(t *testing.T) {
	tr := try(t, "F13", "one daemon's file rewritten 100 times rightly and 100 times wrongly, in place, by another file, and with SIGHUP",
		"no request fails; each is decided by the rules of one version; a wrong file changes nothing, sets the metric to 0 and is reported by /readyz; counters are kept; p99 ≤ 2 × before, and no time of 100 ms in which all calls are slower")
	c := newConfigured(tr)
	load := c.fleet.StartLoad(mix())
	c.lookFor(load, pick(10*time.Second, time.Second))
	begin := load.Now()
	times := pick(100, 4)
	for i := range times {
		c.rewrite(i)
	}
	end := load.Now()
	list := load.Stop()
	elapsed := time.Since(c.began)
	c.fleet.Stop()

	tr.note("right and wrong files", "%d each, in %s", times, brief(end-begin))
	tr.judge(list, 0, "0")
	tr.note("batches and checks besides", "%d", c.asked)
	tr.none("of these without a decision", c.failed)
	tr.none("decided by rules of two versions", c.mixed)
	tr.note("batches with limits of two versions", "%d", c.halfDone)
	tr.none("decided by a wrong file, or by an old one again", c.stray)
	tr.none("wrong files that metric or /readyz do not tell", c.untold)
	most := float64(versionOf(times))
	tr.atMost("admitted of a limit whose numbers changed", float64(c.admitted), most+most*elapsed.Hours(), "greatest burst + rate × time")
	before := history.Percentile(history.Between(list, 0, begin), 0.99)
	tr.stalled(list)
	tr.note("p99 before", "%s", brief(before))
	tr.within("p99 meanwhile", history.Percentile(history.Between(list, begin, end), 0.99), 2*before)
	tr.within("longest time in which all calls took more than 2 × p99 before",
		longestSlow(history.Between(list, begin, end), 2*before), 100*time.Millisecond)
}

// configured is a daemon with a file. The file's version is what its limits have as
// rate, per hour, and burst.
//
// There are two policies of which one is off, in each version the other. A request is
// decided by the rules of one version, so it never finds both on or both off. The numbers
// of the others are changed in the store, one policy after the other and before the rules
// follow, so that what was used stays used. A request can meet that half done.
type configured struct {
	*trial
	fleet *rig.Fleet
	file  string
	began time.Time
	at    int    // the version in force
	on    string // the policy of switched that is

	asked, failed, mixed, stray, untold int
	halfDone                            int   // answers with limits of two versions
	admitted                            int64 // of a key of a limit whose numbers change
}

// versionOf returns the version of the i-th right file.
func versionOf(i int) int { return 1000 + i }

// The policies of which one is off, and those of which the numbers change.
var (
	switched   = []string{"even", "odd"}
	renumbered = []string{"a", "b", "c"}
)

// content returns a file. default is always the same; extra is put at the end.
func content(version int, extra string) string {
	var b strings.Builder
	b.WriteString("policies:\n  default: {limits: [{rate: 100, per: 1s, burst: 100}]}\n")
	modes := []string{"enforce", "off"}
	for i, name := range switched {
		fmt.Fprintf(&b, "  %s: {mode: %s, limits: [{rate: 7, per: 1h}]}\n", name, modes[(version+i)%2])
	}
	for _, name := range renumbered {
		fmt.Fprintf(&b, "  %s: {limits: [{rate: %d, per: 1h, burst: %d}]}\n", name, version, version)
	}
	return b.String() + extra
}

func newConfigured(tr *trial) *configured {
	c := &configured{trial: tr, file: filepath.Join(tr.TempDir(), "weir.yaml"), at: versionOf(0), began: time.Now()}
	c.write(content(c.at, ""), 0)
	c.fleet = tr.fleet(1, "-c", c.file)
	c.drain(int64(c.at))
	return c
}

// rewrite writes a wrong file and then the next right one, and waits each time until the
// daemon has noticed.
func (c *configured) rewrite(i int) {
	c.Helper()
	wrong := content(9000+i, strings.Repeat("\n", i)) // so that the error is on another line each time
	where := fmt.Sprintf("%s:%d:", filepath.Base(c.file), 1+strings.Count(wrong, "\n"))
	c.write(wrong+"nonsense: true\n", 2*i)
	rig.Await(c, "the daemon to refuse a file", patience, func() error {
		c.look()
		text, err := c.fleet.Get(0, "/admin/v1/config")
		if err == nil && !strings.Contains(text, where) {
			err = fmt.Errorf("/admin/v1/config does not tell of %s: %q", where, text)
		}
		return err
	})
	if c.fleet.Metric(0, reloadMetric) != 0 {
		c.untold++
	}

	next := versionOf(i + 1)
	c.write(content(next, ""), 2*i+1)
	rig.Await(c, "the daemon to take over a file", patience, func() error {
		c.look()
		text, err := c.fleet.Get(0, "/readyz")
		if err == nil && (c.at != next || c.on != switched[next%2] || text != "ready\n") {
			err = fmt.Errorf("version %d and policy %s are in force, want %d; /readyz says %q", c.at, c.on, next, text)
		}
		return err
	})
	c.drain(1)
	if c.fleet.Metric(0, reloadMetric) != 1 {
		c.untold++
	}
}

const reloadMetric = "weir_config_last_reload_successful"

// write puts a file in place, in one of several ways.
func (c *configured) write(text string, way int) {
	c.Helper()
	text += strings.Repeat("#", fileLength-len(text)-1) + "\n"
	var err error
	switch way % 3 {
	case 0: // in place
		err = overwrite(c.file, text)
	case 1: // as editors do
		other := c.file + ".new"
		err = errors.Join(os.WriteFile(other, []byte(text), 0o600), os.Rename(other, c.file))
	case 2: // and the daemon gets SIGHUP
		err = overwrite(c.file, text)
		c.fleet.Daemons[0].Hangup()
	}
	if err != nil {
		c.Fatal(err)
	}
}

// fileLength is that of all files: who makes a file shorter before it is written again
// shows an empty one to a concurrent reader, and that is a configuration, too.
const fileLength = 1024

// overwrite writes a file in place, at once.
func overwrite(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(text), 0)
	return errors.Join(err, f.Close())
}

// look returns which version is in force.
func (c *configured) look() {
	c.Helper()
	if limits := c.batch(renumbered); limits != nil {
		c.see(limits[0])
		if slices.Max(limits) != slices.Min(limits) {
			c.halfDone++
		}
	}
	limits := c.batch(switched)
	for i := 0; i+1 < len(limits); i += 2 {
		even, odd := limits[i] > 0, limits[i+1] > 0 // what is off has no limit
		if even == odd || even != (limits[0] > 0) {
			c.mixed++
			c.Logf("decided by rules of two versions: %v", limits)
			break
		}
		c.on = switched[0]
		if odd {
			c.on = switched[1]
		}
	}
	var one rig.Answer
	var header http.Header
	if c.post("/v1/check", `{"policy":"even","key":"looked at","peek":true}`, &one, &header) &&
		(header.Get("RateLimit-Policy") != "") != (one.Limit > 0) {
		c.mixed++
		c.Logf("%+v has the headers %v", one, header)
	}
}

// lookFor looks as often as when files are rewritten, so that calls before and then differ by the
// reloads alone.
func (c *configured) lookFor(load *rig.Load, d time.Duration) {
	c.Helper()
	end := load.Now() + d
	rig.Await(c, "the time before the reloads to be over", d+patience, func() error {
		c.look()
		if _, err := c.fleet.Get(0, "/readyz"); err != nil {
			c.Error(err)
		}
		if load.Now() < end {
			return errors.New("it is not over")
		}
		return nil
	})
}

// batch looks at policies often in one batch, by turns. It returns what their limits are,
// nil if there was no decision.
func (c *configured) batch(policies []string) (limits []int) {
	c.Helper()
	var items []string
	for range 10 {
		for _, name := range policies {
			items = append(items, fmt.Sprintf(`{"policy":%q,"key":"looked at","peek":true}`, name))
		}
	}
	var batch struct{ Decisions []rig.Answer }
	if !c.post("/v1/check/batch", `{"checks":[`+strings.Join(items, ",")+`]}`, &batch, nil) {
		return nil
	}
	for _, d := range batch.Decisions {
		limits = append(limits, int(d.Limit))
	}
	return limits
}

// see notes a version, which can be that in force or the next.
func (c *configured) see(version int) {
	if version != c.at && version != c.at+1 {
		c.stray++
	}
	c.at = max(c.at, version)
}

// drain takes what a key has left of a limit whose numbers change, in steps.
func (c *configured) drain(step int64) {
	c.Helper()
	for range 20 {
		var answer rig.Answer
		if !c.post("/v1/check", fmt.Sprintf(`{"policy":"a","key":"drained","cost":%d}`, step), &answer, nil) || !answer.Allowed {
			return
		}
		c.admitted += step
	}
}

// post makes a call, and counts what is no decision.
func (c *configured) post(path, body string, out any, header *http.Header) bool {
	c.Helper()
	c.asked++
	status, text, h, err := c.fleet.Post(0, path, []byte(body))
	if err == nil && status == http.StatusOK {
		err = json.Unmarshal([]byte(text), out)
	} else if err == nil {
		err = fmt.Errorf("status %d", status)
	}
	if err != nil {
		c.failed++
		c.Logf("%s: %v: %s", path, err, text)
		return false
	}
	if header != nil {
		*header = h
	}
	return true
}

// longestSlow returns for how long no call was faster than a bound: from when the first
// of several slow ones in a row was sent until the last was answered.
func longestSlow(list []history.Decision, bound time.Duration) (longest time.Duration) {
	var from time.Duration
	slow := false
	for _, d := range list { // nearly in the order of answers
		switch {
		case d.Stalled:
		case d.Latency() <= bound:
			slow = false
		case !slow:
			slow, from = true, d.Sent
			longest = max(longest, d.Latency())
		default:
			longest = max(longest, d.Received-from)
		}
	}
	return longest
}
