package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/config"
)

func newConfig() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Look at configurations, check and import them",
		Long: `Look at configurations, check and import them. docs/config.md describes every field; for
editors there is a JSON Schema.`,
		Example: `  weir config validate weir.yaml
  weir config print --config weir.yaml
  weir config schema >weir.schema.json
  weir config import --from envoy ratelimit.yaml --output weir.yaml`,
		Args:                  knownCommand,
		RunE:                  showHelp,
		DisableFlagsInUseLine: true,
	}
	cmd.AddCommand(newConfigValidate(), newConfigPrint(), newConfigSchema(), newConfigImport())
	return cmd
}

func newConfigValidate() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "validate FILE",
		Short: "Check a configuration, and print all errors",
		Long: `Check a configuration with the current environment, and print all errors. The exit
code is 0 if a daemon would accept it.`,
		Example: `  weir config validate weir.yaml
  weir config validate weir.yaml --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return misused(cmd, "one file is needed, such as 'weir config validate weir.yaml'")
			}
			return nil
		},
		RunE:                  func(cmd *cobra.Command, args []string) error { return validate(cmd, args[0], asJSON) },
		DisableFlagsInUseLine: true,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the problems as JSON")
	return cmd
}

// validity is what weir config validate --json prints.
type validity struct {
	Valid    bool      `json:"valid"`
	Problems []problem `json:"problems"`
	Warnings []problem `json:"warnings"`
}

type problem struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Field  string `json:"field"`
	Text   string `json:"text"`
}

func newProblems(list []*config.Problem) []problem {
	out := []problem{}
	for _, p := range list {
		out = append(out, problem{p.File, p.Line, p.Column, p.Path, p.Text})
	}
	return out
}

func validate(cmd *cobra.Command, file string, asJSON bool) error {
	cfg, err := config.Load(file, os.Environ())
	bad := configError(err)
	if err != nil && bad == nil {
		return err
	}
	if asJSON {
		v := validity{Valid: err == nil, Problems: newProblems(nil), Warnings: newProblems(nil)}
		if bad != nil {
			v.Problems = newProblems(bad.Problems)
		} else {
			v.Warnings = newProblems(cfg.Warnings)
		}
		if err := printJSON(cmd.OutOrStdout(), v); err != nil || v.Valid {
			return err
		}
		return errPrinted
	}
	if err != nil {
		return err
	}
	for _, w := range cfg.Warnings {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: %v\n", w)
	}
	policies, more := strconv.Itoa(len(cfg.Live().Policies)), ""
	if cfg.HasDefaultPolicy() {
		policies += " (the default)"
	}
	if g := cfg.Live().Guard; g != nil {
		more = fmt.Sprintf(", endpoints of the guard: %d", len(g.Endpoints))
	}
	if n := len(cfg.Live().Budgets); n > 0 {
		more += fmt.Sprintf(", budgets: %d", n)
	}
	if n := len(cfg.Live().Routes); n > 0 {
		more += fmt.Sprintf(", routes: %d", n)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s is valid (policies: %s, clients: %d%s)\n", file, policies, len(cfg.Live().Clients), more)
	return nil
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func newConfigPrint() *cobra.Command {
	var flags configFlags
	asJSON := false
	cmd := &cobra.Command{
		Use:   "print [flags]",
		Short: "Show what would be in force, and where each value comes from",
		Long: `Show what would be in force if a daemon were started with the same flags and the same
environment, and where each value comes from. Secrets are shown as ***.`,
		Example: `  weir config print
  weir config print --config weir.yaml
  WEIR__STORE__KIND=redis weir config print --config weir.yaml --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := flags.load(cmd)
			if err != nil {
				return err
			}
			format := config.YAML
			if asJSON {
				format = config.JSON
			}
			return cfg.Print(cmd.OutOrStdout(), format)
		},
		DisableFlagsInUseLine: true,
	}
	flags.register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newConfigSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of configurations, for editors",
		Example: `  weir config schema >weir.schema.json

Editors with a YAML language server follow this first line of a configuration:
  # yaml-language-server: $schema=weir.schema.json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(config.Schema())
			return err
		},
		DisableFlagsInUseLine: true,
	}
}

func newConfigImport() *cobra.Command {
	var flags importFlags
	cmd := &cobra.Command{
		Use:   "import --from KIND [FILE] [flags]",
		Short: "Turn the configuration of another limiter into weir's",
		Long: `Turn the configuration of another limiter into weir's, and print it. What weir has no
equivalent of is listed on stderr. FILE may be - for standard input. With --output the
result is written to a file, which stays as it was after an error, and which only its
owner can read if it is new: a result may have keys in URLs. KIND is

  envoy    the YAML of envoyproxy/ratelimit, whose limits become fixed windows
  river    the rateLimits section of a River node, which becomes a guard section
  alchemy  a file of environment variables such as ALCHEMY_CU_PER_SECOND=500, which becomes a
           budgets section, and ETHEREUM_RPC_URLS=…, which becomes a route; with --env and no
           file, the variables of the environment
  suibase  the links of a suibase.yaml, which become a route`,
		Example: `  weir config import --from envoy ratelimit.yaml --output weir.yaml
  weir config import --from envoy - <ratelimit.yaml
  weir config import --from river --env node.yaml --output weir.yaml
  weir config import --from alchemy worker.env --output weir.yaml
  weir config import --from suibase ~/suibase/workdirs/testnet/suibase.yaml --output weir.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 || len(args) == 0 && flags.from == "alchemy" && flags.env {
				return nil
			}
			return misused(cmd, "one file is needed; - is standard input")
		},
		RunE:                  func(cmd *cobra.Command, args []string) error { return flags.run(cmd, args) },
		DisableFlagsInUseLine: true,
	}
	cmd.Flags().StringVar(&flags.from, "from", "", "whose configuration it is, as a `kind`: envoy, river, alchemy or suibase")
	cmd.Flags().StringVarP(&flags.output, "output", "o", "", "`file` to write to; the default is standard output")
	cmd.Flags().BoolVar(&flags.env, "env", false, "apply the variables RIVER_RATELIMITS_… of the environment for river, ALCHEMY_… for alchemy")
	completeWith(cmd, "from", "envoy", "river", "alchemy", "suibase")
	return cmd
}

// importFlags are the flags of weir config import.
type importFlags struct {
	from, output string
	env          bool
}

// run prints or writes a configuration. An error ends with what became of the output, which a shell has emptied if
// it was redirected to a file.
func (f *importFlags) run(cmd *cobra.Command, files []string) error {
	out, notes, err := f.convert(cmd, files)
	switch {
	case err == nil:
	case errors.As(err, new(*usageError)):
		return err
	case f.output != "":
		return &notWritten{err, f.unchanged()}
	default:
		return &notWritten{err, ": if the output is redirected to a file, that is empty now; --output FILE writes it only if there is no error"}
	}
	for _, n := range notes {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: %v\n", n)
	}
	if f.output != "" {
		return os.WriteFile(f.output, out, 0o600) // it may have keys in URLs
	}
	_, err = cmd.OutOrStdout().Write(out)
	return err
}

// unchanged says what became of the output file.
func (f *importFlags) unchanged() string {
	if _, err := os.Lstat(f.output); err != nil {
		return "" // there is none
	}
	return ": " + f.output + " is as it was"
}

// convert returns the configuration and what is different in it.
func (f *importFlags) convert(cmd *cobra.Command, files []string) ([]byte, []config.Note, error) {
	var environ []string
	if f.env {
		environ = os.Environ()
	}
	convert := map[string]func(string, []byte) ([]byte, []config.Note, error){
		"envoy":   config.ImportEnvoy,
		"suibase": config.ImportSuibase,
		"river": func(name string, data []byte) ([]byte, []config.Note, error) {
			return config.ImportRiver(name, data, environ)
		},
		"alchemy": func(name string, data []byte) ([]byte, []config.Note, error) {
			return config.ImportAlchemy(name, data, environ)
		},
	}[f.from]
	switch {
	case convert == nil:
		return nil, nil, misused(cmd, fmt.Sprintf("--from %q: must be envoy, river, alchemy or suibase", f.from))
	case f.env && (f.from == "envoy" || f.from == "suibase"):
		return nil, nil, misused(cmd, "--env is for --from river and alchemy")
	case f.output == "" && cmd.Flags().Changed("output"):
		return nil, nil, misused(cmd, "--output: must be the name of a file; leave it out for standard output")
	}
	name, data := "the environment", []byte(nil)
	if len(files) > 0 {
		var err error
		if name, data, err = readInput(cmd, files[0]); err != nil {
			return nil, nil, err
		}
	}
	return convert(name, data)
}

// A notWritten is an error because of which nothing was written.
type notWritten struct {
	error
	state string // of the output, after a colon; "" if there is none
}

func (e *notWritten) Unwrap() error { return e.error }

// maxImport is how much of a file is read.
const maxImport = 1 << 20

func readInput(cmd *cobra.Command, file string) (string, []byte, error) {
	if file == "-" {
		data, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxImport+1))
		return config.Stdin, data, err
	}
	f, err := os.Open(file)
	if err != nil {
		return file, nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxImport+1))
	return file, data, err
}
