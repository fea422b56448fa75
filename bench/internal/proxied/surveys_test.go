package proxied

import (
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
)

// TestSurveys runs every survey briefly and checks that the answers are plausible.
func TestSurveys(t *testing.T) {
	for _, s := range Surveys(Sizes{Rounds: 2, PerRun: 10 * time.Millisecond}) {
		t.Run(s.Name, func(t *testing.T) {
			a, err := harness.Ask(s, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i, sub := range s.Subjects {
				for k, f := range s.Figures {
					v := a.Values[i][k]
					if v > 1e7 || v <= 0 && !strings.HasPrefix(f.Name, "CPU") && f.Name != "first byte later by" {
						t.Errorf("%s, %s: %v %s", sub.Name, f.Name, v, f.Unit)
					}
				}
			}
		})
	}
}

// TestServicesAnswerAlike asks once through each service.
func TestServicesAnswerAlike(t *testing.T) {
	for _, u := range []upstreamHandler{short, long} {
		target, stop, err := serve(u)
		if err != nil {
			t.Fatal(err)
		}
		for _, svc := range []service{direct, whole, plain, charged} {
			e, err := svc.connect(target, 1)
			if err != nil {
				t.Fatal(err)
			}
			s, err := e.callers[0].ask()
			if want := int64(len(u.body) * max(1, u.pieces)); err != nil || s.bytes != want {
				t.Errorf("%s: %d bytes, %v: want %d", svc.name, s.bytes, err, want)
			}
			if err := e.close(); err != nil {
				t.Error(err)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}
