package config

import (
	"strings"
	"testing"
)

func TestImportAlchemy(t *testing.T) {
	out, notes, err := ImportAlchemy("x.env", []byte("# a comment\nexport ALCHEMY_CU_PER_SECOND=1000\nALCHEMY_RESERVED_CU = \"0\"\nHOME=/x\n"), []string{"ALCHEMY_PAUSE_THRESHOLD=85"})
	if err != nil || len(notes) != 1 {
		t.Fatal(notes, err)
	}
	c, err := Parse("weir.yaml", out, nil, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b := c.Live().Budgets[0]
	if l := b.Limits; b.Name != "alchemy" || len(l) != 2 || l[0].Rate != 970 || l[0].Burst != 1000 || l[1].Rate != 10_000 {
		t.Errorf("%+v", b)
	}
	if k := b.Classes; k[0].Guaranteed != 0 || k[1].Guaranteed != 970 || *b.Thresholds.Pause != 85 || *b.Thresholds.Warning != 80 {
		t.Errorf("%+v", b)
	}
	if cost, err := b.Costs.Cost("eth_unheardOf"); err != nil || cost["throughput"] != 20 {
		t.Errorf("an unknown method costs %v, %v", cost, err)
	}
}

// What is wrong is found where it stands, and nothing is written.
func TestImportAlchemyErrors(t *testing.T) {
	tests := []struct{ file, environ, want string }{
		{"\nALCHEMY_CU_PER_SECOND=0\n", "", "x.env:2:1: ALCHEMY_CU_PER_SECOND \"0\": must be a whole number from 1"},
		{"ALCHEMY_RESERVED_CUS=1\n", "", "x.env:1:1: ALCHEMY_RESERVED_CUS is no variable of a budget"},
		{"", "ALCHEMY_WARNING_THRESHOLD=95", "environment variable ALCHEMY_WARNING_THRESHOLD: ALCHEMY_WARNING_THRESHOLD 95: must not be more than"},
	}
	for _, tt := range tests {
		out, _, err := ImportAlchemy("x.env", []byte(tt.file), []string{tt.environ})
		if err == nil || out != nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q %q: %v", tt.file, tt.environ, err)
		}
	}
}
