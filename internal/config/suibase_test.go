package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/golden"
	"github.com/weirlimit/weir/upstream"
)

// Beside each file of testdata/suibase is what becomes of it: ours and the notes, or the problems (S0.12, S0.14).
func TestImportSuibase(t *testing.T) {
	names, err := filepath.Glob("testdata/suibase/*.yaml")
	if err != nil || len(names) < 4 {
		t.Fatal(len(names), err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			ours, notes, err := ImportSuibase(filepath.Base(name), data)
			if err != nil {
				fmt.Fprintln(&b, err)
			}
			b.Write(ours)
			for _, n := range notes {
				fmt.Fprintln(&b, "#", n)
			}
			if strings.Contains(b.String(), "CANARY") {
				t.Errorf("a secret is shown:\n%s", b.String())
			}
			golden.Check(t, strings.TrimSuffix(name, ".yaml")+".golden", []byte(b.String()))
			if err != nil {
				return
			}
			c, err := Parse("ours.yaml", ours, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			route := c.Live().Routes[0]
			one, qps := route.Pool.Endpoints[0], route.Pool.Endpoints[1]
			if route.Pool.Name != "testnet" || !slices.Equal(one.Limits, upstream.Rate{PerSecond: 100, PerMinute: 5000}.Limits()) || one.Priority != 10 {
				t.Errorf("%+v", one)
			}
			if !qps.Unselectable || qps.Unmonitored || qps.Priority != 1 || len(qps.Limits) != 1 || len(route.Pool.Endpoints[3].Limits) != 0 {
				t.Errorf("%+v", qps)
			}
		})
	}
}

func TestWorkdir(t *testing.T) {
	for file, want := range map[string]string{
		"/home/me/suibase/workdirs/testnet/suibase.yaml": "testnet", "suibase.yaml": "suibase", "devnet.yaml": "devnet", "workdirs/mainnet.yaml": "mainnet",
		"/suibase.yaml": "suibase", "standard input": "standard-input", "ä.yaml": "sui", strings.Repeat("x", 49): "sui", "my net/suibase.yaml": "my-net",
	} {
		if got := workdir(file); got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
}
