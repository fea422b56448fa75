package config

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	yaml "github.com/goccy/go-yaml"
	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/weirlimit/weir/internal/golden"
)

// makeSchema makes the schema from the structs.
func makeSchema(t *testing.T) []byte {
	t.Helper()
	structs := describe(t)
	comments := map[string]string{}
	for _, s := range structs {
		comments[s.typ.Name()] = s.comment
		for _, f := range s.fields {
			comments[s.typ.Name()+"."+s.typ.Field(f.index).Name] = f.comment
		}
	}
	r := &jsonschema.Reflector{
		Anonymous: true, ExpandedStruct: true, RequiredFromJSONSchemaTags: true, FieldNameTag: "yaml", Mapper: leafSchema,
		LookupComment: func(t reflect.Type, field string) string {
			if field == "" {
				return comments[t.Name()]
			}
			return comments[t.Name()+"."+field]
		},
	}
	root := r.ReflectFromType(reflect.TypeFor[File]())
	root.Title = "weir.yaml"
	for _, s := range structs {
		complete(root, s)
	}
	data, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(data, '\n')
}

// leafSchema returns the schema of a scalar that the library does not know.
func leafSchema(t reflect.Type) *jsonschema.Schema {
	if e, ok := as[enum](t); ok {
		s := &jsonschema.Schema{Type: "string"}
		for _, word := range e.choices() {
			s.Enum = append(s.Enum, word)
		}
		return s
	}
	if t == reflect.TypeFor[Nodes]() {
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "integer", Minimum: "1"}, {Type: "string", Enum: []any{"auto"}}}}
	}
	if t == reflect.TypeFor[Share]() {
		pattern, example := new(Share).pattern()
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "integer", Minimum: "0"}, {Type: "string", Pattern: pattern, Examples: []any{example}}}}
	}
	if t == reflect.TypeFor[Amount]() || t == reflect.TypeFor[Credit]() {
		return &jsonschema.Schema{Type: "integer", Minimum: "0"}
	}
	if t == reflect.TypeFor[Multiplier]() {
		return &jsonschema.Schema{Type: "number", ExclusiveMinimum: "0"}
	}
	if t == reflect.TypeFor[LimitList]() {
		limit := &jsonschema.Schema{Ref: "#/$defs/Limit"}
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{limit, {Type: "array", Items: limit}}}
	}
	if d, ok := as[described](t); ok {
		pattern, example := d.pattern()
		return &jsonschema.Schema{Type: "string", Pattern: pattern, Examples: []any{example}}
	}
	if _, ok := as[textual](t); ok {
		return &jsonschema.Schema{Type: "string"}
	}
	return nil
}

// complete adds defaults and short forms.
func complete(root *jsonschema.Schema, s structDoc) {
	def := root
	if s.typ != reflect.TypeFor[File]() {
		def = root.Definitions[s.typ.Name()]
	}
	for _, f := range s.fields {
		if property, ok := def.Properties.Get(f.name); ok && f.fallback != "" {
			property.Default = typed(f)
		}
	}
	if _, ok := as[shorthand](s.typ); ok {
		long := *def
		*def = jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "string"}, &long}, Description: long.Description}
		long.Description = ""
	}
}

const repository = "../.."

func TestSchema(t *testing.T) {
	want := string(makeSchema(t))
	golden.Check(t, "schema.json", []byte(want))
	golden.Check(t, filepath.Join(repository, "docs/weir.schema.json"), []byte(want))
	if !golden.Updating() && string(Schema()) != want {
		t.Error("Schema returns something else")
	}
}

// validate returns what the schema says about YAML.
func validate(t *testing.T, data []byte) error {
	t.Helper()
	document, err := validator.UnmarshalJSON(bytes.NewReader(makeSchema(t)))
	if err != nil {
		t.Fatal(err)
	}
	c := validator.NewCompiler()
	if err := c.AddResource("weir.schema.json", document); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("weir.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	inJSON, err := yaml.YAMLToJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	value, err := validator.UnmarshalJSON(bytes.NewReader(inJSON))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(value)
}

func TestSchemaAccepts(t *testing.T) {
	example, err := os.ReadFile(filepath.Join(repository, "weir.example.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	full, err := os.ReadFile("testdata/good/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	classes, err := os.ReadFile("testdata/good/classes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	budgets, err := os.ReadFile("testdata/good/budgets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range [][]byte{example, full, classes, budgets, []byte("{}")} {
		if err := validate(t, data); err != nil {
			t.Error(err)
		}
	}
	if !bytes.HasPrefix(example, []byte("# yaml-language-server: $schema=docs/weir.schema.json\n")) {
		t.Error("editors do not find the schema of weir.example.yaml")
	}
}

func TestSchemaRefuses(t *testing.T) {
	for _, text := range []string{
		"polices: {}", "listen: {htpp: x}", "listen: {http: 8080}", "store: {kind: rediss}", "log: {level: 3}",
		"policies: {api: {limits: [{rate: 0, per: 1s}]}}", "policies: {api: {limits: [{rate: 1.5, per: 1s}]}}",
		"policies: {api: {limits: [{rate: 1, per: 5}]}}", "policies: {api: {limits: [{rate: 1, per: fortnight}]}}",
		"policies: {api: {limits: [{per: 1s}]}}", "policies: {api: {limits: [{rate: 1, brust: 2}]}}", "policies: {api: {rollout: 12.5}}",
		"policies: {api: {limits: [{rate: 1, per: 1s, classes: {a: {guaranteed: half}}}]}}", "policies: {api: {limits: [{rate: 1, per: 1s, classes: {a: {guaranteed: -1}}}]}}",
		"budgets: {a: {preset: x}}", "budgets: {a: {costs: {methods: {m: {cu: -1}}}}}", "budgets: {a: {costs: {unknown: 5}}}", "budgets: {a: {thresholds: {pause: 90}}}", "budgets: {a: {prepaid: {cu: many}}}",
		"envoy: [{descriptors: []}]", "store: {redis: {nodes: 0}}", "clients: {a: token}", "forward_auth: {trusted_proxies: [10.0.0.1]}",
	} {
		if err := validate(t, []byte(text)); err == nil {
			t.Errorf("%s: is fine with the schema", text)
		}
	}
}

// Whatever is said to be an example can be loaded.
func TestExamplesOfFields(t *testing.T) {
	for _, s := range describe(t) {
		for _, f := range s.fields {
			switch {
			case f.example == "" && (isLeaf(f.typ) || f.typ.Kind() == reflect.Slice && isLeaf(f.typ.Elem())):
				t.Errorf("%v.%s has no example", s.typ, f.name)
			case f.example != "":
				r := newReport(f.example)
				n := parseYAML("example", f.example, r)
				d := &decoder{report: r, environ: map[string]string{}, bounds: f.bounds}
				for _, name := range []string{"CHECKOUT_TOKEN", "OLD", "NEW", "SENTINEL_PASSWORD", "REDIS_PASSWORD", "COLLECTOR_AUTH", "ALCHEMY_1", "ALCHEMY_1_WS", "NODE_KEY"} {
					d.environ[name] = strings.Repeat(name, 4)
				}
				if n != nil {
					d.value(n, reflect.New(f.typ).Elem(), nil)
				}
				if err := r.err(nil); err != nil {
					t.Errorf("%v.%s: %v", s.typ, f.name, err)
				}
			}
		}
	}
}
