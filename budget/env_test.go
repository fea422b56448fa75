package budget

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
)

// TestFromEnv: S1.23, F1.12, F1.20.
func TestFromEnv(t *testing.T) {
	tests := []struct {
		name                                      string
		environ                                   []string
		rate, burst, window, realtime, background int64
	}{
		{"defaults", nil, 485, 500, 5000, 291, 194},
		{"another plan", []string{"ALCHEMY_CU_PER_SECOND=1000", "HOME=/home/x", "ALCHEMY_API_KEY=x"}, 970, 1000, 10_000, 582, 388},
		{"nothing reserved", []string{"ALCHEMY_RESERVED_CU=0"}, 485, 500, 5000, 0, 485},
		{"shared alone", []string{"ALCHEMY_SHARED_CU=100"}, 485, 500, 5000, 388, 97},
		{"neither is rounded up", []string{"ALCHEMY_RESERVED_CU=100", "ALCHEMY_SHARED_CU=100"}, 485, 500, 5000, 97, 97},
		{"a longer window", []string{"ALCHEMY_WINDOW_SIZE_MS=5000"}, 485, 2500, 5000, 291, 194},
		{"the least", []string{"ALCHEMY_CU_PER_SECOND=1", "ALCHEMY_WINDOW_SIZE_MS=1"}, 1, 1, 10, 0, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := FromEnv(tt.environ)
			if err != nil {
				t.Fatal(err)
			}
			main, window := c.Limits[0], c.Limits[1]
			if main.Rate != tt.rate || main.Burst != tt.burst || window.Rate != tt.window {
				t.Errorf("rate %d, burst %d, window %d, want %d, %d, %d", main.Rate, main.Burst, window.Rate, tt.rate, tt.burst, tt.window)
			}
			if r, b := c.Classes[0].Guaranteed, c.Classes[1].Guaranteed; r != tt.realtime || b != tt.background {
				t.Errorf("guaranteed %d and %d, want %d and %d", r, b, tt.realtime, tt.background)
			}
			newAccount(t, c)
		})
	}
}

func TestFromEnvThresholds(t *testing.T) {
	c, err := FromEnv([]string{"ALCHEMY_WARNING_THRESHOLD=0", "ALCHEMY_PAUSE_THRESHOLD=50", "ALCHEMY_DEFAULT_METHOD_COST=7"})
	if err != nil {
		t.Fatal(err)
	}
	if m := c.Thresholds.marks(); m != (marks{warning: 0, pause: 50, critical: 100, resume: 50}) {
		t.Errorf("thresholds %+v", m)
	}
	if cost, err := c.Costs.Cost("eth_unheardOf"); err != nil || cost["throughput"] != 7 || cost["cu"] != 7 {
		t.Errorf("an unknown method costs %v, %v", cost, err)
	}
}

// TestFromEnvErrors: S1.24, F1.20: an invalid value is an error, not a default.
func TestFromEnvErrors(t *testing.T) {
	tests := []struct{ environ, want string }{
		{"ALCHEMY_CU_PER_SECOND=0", "must be a whole number from 1 to"},
		{"ALCHEMY_CU_PER_SECOND=fast", `"fast": must be a whole number`},
		{"ALCHEMY_CU_PER_SECOND=", "must be a whole number"},
		{"ALCHEMY_RESERVED_CU=-1", "must be a whole number from 0"},
		{"ALCHEMY_RESERVED_CU=501", "must not be more than ALCHEMY_CU_PER_SECOND"},
		{"ALCHEMY_RESERVED_CU=300 ALCHEMY_SHARED_CU=201", "must not be more than ALCHEMY_CU_PER_SECOND"},
		{"ALCHEMY_WARNING_THRESHOLD=95", "must not be more than ALCHEMY_PAUSE_THRESHOLD"},
		{"ALCHEMY_PAUSE_THRESHOLD=101", "from 0 to 100"},
		{"ALCHEMY_WINDOW_SIZE_MS=0", "from 1 to 10000"},
		{"ALCHEMY_RESERVED_CUS=300", "is no variable of a budget"},
		{"ALCHEMY_CU_PER_SECOND=x ALCHEMY_SHARED_CU=y", "ALCHEMY_SHARED_CU"},
	}
	for _, tt := range tests {
		if _, err := FromEnv(strings.Fields(tt.environ)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.environ, err, tt.want)
		}
	}
}

// TestFromEnvIsUsable: whatever FromEnv takes is an account.
func TestFromEnvIsUsable(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	usable, refused := 0, 0
	for range 2000 {
		var environ []string
		for _, v := range variables {
			n := v.least
			switch r.IntN(4) {
			case 0:
				continue
			case 1:
				n += r.Int64N(min(v.most-v.least, 1000) + 1)
			case 2:
				n = v.most - r.Int64N(v.most-v.least+1)
			}
			environ = append(environ, v.name+"="+strconv.FormatInt(n, 10))
		}
		c, err := FromEnv(environ)
		if err != nil {
			refused++
			continue
		}
		usable++
		c.Logger = slog.New(slog.DiscardHandler)
		if _, err := New(weir.Must(memstore.New(memstore.Config{})), c); err != nil {
			t.Fatalf("%q: %v", environ, err)
		}
	}
	if usable < 200 || refused < 200 {
		t.Errorf("%d usable, %d refused", usable, refused)
	}
}

// TestFromEnvOfFew: however few units there are and however they are divided, the classes get no more than all of them.
func TestFromEnvOfFew(t *testing.T) {
	for total := range int64(50) {
		for reserved := range total + 2 {
			c, err := FromEnv([]string{fmt.Sprintf("ALCHEMY_CU_PER_SECOND=%d", total+1), fmt.Sprintf("ALCHEMY_RESERVED_CU=%d", reserved)})
			if err == nil {
				err = c.Validate()
			}
			if err != nil {
				t.Fatalf("%d of %d: %v", reserved, total+1, err)
			}
			if realtime := c.Classes[0].Guaranteed; realtime != usable(reserved) {
				t.Errorf("%d of %d: realtime has %d", reserved, total+1, realtime)
			}
		}
	}
}
