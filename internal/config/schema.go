package config

import (
	_ "embed"
	"slices"
)

//go:generate go test -run TestSchema -update .

// schema is made from File by the test that also checks it: a program that only reads
// configurations needs no library for that.
//
//go:embed schema.json
var schema []byte

// Schema returns a JSON Schema (draft 2020-12) of the file, for editors. It is also
// docs/weir.schema.json. It knows names, types and forms of values; what depends on other
// values only Load knows.
func Schema() []byte { return slices.Clone(schema) }
