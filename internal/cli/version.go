package cli

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is the release, set by the linker:
//
//	go build -ldflags "-X github.com/weirlimit/weir/internal/cli.version=v1.2.3" ./cmd/weir
var version string

// buildVersion is what weir version prints.
type buildVersion struct {
	Version  string `json:"version"`  // such as "v1.2.3", or "devel"
	Commit   string `json:"commit"`   // "" if unknown
	Time     string `json:"time"`     // of the commit, RFC 3339; "" if unknown
	Modified bool   `json:"modified"` // the tree had changes that were not committed
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

// readVersion prefers the version that the linker set over what Go recorded.
func readVersion() buildVersion {
	v := buildVersion{Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if ok {
		v.fill(info)
	}
	if v.Version == "" {
		v.Version = "devel"
	}
	return v
}

func (v *buildVersion) fill(info *debug.BuildInfo) {
	if v.Version == "" && info.Main.Version != "(devel)" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
}

// String returns one line for people.
func (v buildVersion) String() string {
	s := fmt.Sprintf("weir %s (%s %s/%s", v.Version, v.Go, v.OS, v.Arch)
	if v.Commit != "" {
		s += ", commit " + v.Commit[:min(12, len(v.Commit))]
	}
	if v.Modified {
		s += ", modified"
	}
	return s + ")"
}

func newVersion() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:                   "version [flags]",
		Short:                 "Say what this is",
		Example:               "  weir version --json",
		Args:                  noArgs,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(readVersion())
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), readVersion())
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
