package config_test

import (
	"fmt"
	"io/fs"
	"os"

	"github.com/weirlimit/weir/internal/config"
)

func ExampleParse() {
	file := []byte(`
policies:
  api:
    limits: [{rate: 100, per: 1s, burst: 200}]
`)
	c, err := config.Parse("weir.yaml", file, []string{"WEIR__POLICIES__API__MODE=shadow"}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range c.Live().Policies {
		fmt.Println(p.Name, p.Mode, p.Limits[0])
	}
	// Output: api shadow 100 per 1s burst 200 (gcra)
}

// All problems are reported together, each with its line, its field and what to do.
func ExampleParse_problems() {
	file := []byte(`
store: {kind: redsi}
policies:
  api:
    limits: [{rate: 0, per: 1s}, {name: daily, rate: 5, per: day, brust: 9}]
`)
	_, err := config.Parse("weir.yaml", file, []string{"WEIR__LOG__LEVL=debug"}, nil)
	fmt.Println(err)
	// Output:
	// weir.yaml:2:15: store.kind: "redsi" must be memory or redis
	//    2 | store: {kind: redsi}
	//      |               ^
	// weir.yaml:5:21: policies.api.limits[0].rate: 0 must be between 1 and 9007199254740991; leave the limit out for no limit
	//    5 |     limits: [{rate: 0, per: 1s}, {name: daily, rate: 5, per: day, brust: 9}]
	//      |                     ^
	// weir.yaml:5:67: policies.api.limits[1].brust: there is no such field: did you mean burst?
	//    5 |     limits: [{rate: 0, per: 1s}, {name: daily, rate: 5, per: day, brust: 9}]
	//      |                                                                   ^
	// WEIR__LOG__LEVL: log.levl: there is no such field: did you mean WEIR__LOG__LEVEL?
}

// Print shows what is in force and where it comes from. Secrets are masked.
func ExampleConfig_Print() {
	file := []byte(`
clients: {checkout: {token_file: secrets/checkout}, search: {token: "${SEARCH}"}}
log: {level: warn}
`)
	secrets := func(string) ([]byte, fs.FileMode, error) {
		return []byte("2f0c1f0e7d6b5a49382716f5e4d3c2b1\n"), 0o600, nil
	}
	environ := []string{"SEARCH=0a1b2c3d4e5f60718293a4b5c6d7e8f9", "WEIR__LOG__FORMAT=json"}
	c, err := config.Parse("weir.yaml", file, environ, secrets)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = c.Print(os.Stdout, config.YAML)
	// Output:
	// listen:
	//   http:
	//     address: 127.0.0.1:8080        # default
	//   grpc:
	//     address: 127.0.0.1:8081        # default
	//   resp:
	//     address: 127.0.0.1:6380        # default
	//   reflection: false                # default
	//   max_connections: 4096            # default
	// clients:
	//   checkout:
	//     token_file: secrets/checkout   # weir.yaml:2
	//   search:
	//     token: "***"                   # weir.yaml:2
	// store:
	//   kind: memory                     # default
	//   max_keys: 1000000                # default
	// policies:
	//   default:
	//     mode: enforce                  # default
	//     rollout: 100%                  # default
	//     limits:
	//       - rate: 100                  # default
	//         per: 1s                    # default
	//         burst: 100                 # default
	//         algorithm: gcra            # default
	// forward_auth:
	//   address_header: x-forwarded-for  # default
	//   ipv6_prefix: 64                  # default
	// headers:
	//   legacy: off                      # default
	// log:
	//   format: json                     # WEIR__LOG__FORMAT
	//   level: warn                      # weir.yaml:3
}

func ExampleImportEnvoy() {
	theirs := []byte(`
domain: edge
descriptors:
  - key: path
    value: /login*
    detailed_metric: true
    rate_limit: {unit: MINUTE, requests_per_unit: 10}
`)
	ours, notes, err := config.ImportEnvoy("edge.yaml", theirs)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(string(ours))
	for _, n := range notes {
		fmt.Println(n)
	}
	// Output:
	// # Imported from edge.yaml.
	// envoy:
	//   - domain: edge
	//     descriptors:
	//       - key: path
	//         value: "/login*"
	//         rate_limit:
	//           unit: minute
	//           requests_per_unit: 10
	//     compat: envoy
	// edge.yaml:6: descriptors[0].detailed_metric: left out: metrics here have no series per value
}
