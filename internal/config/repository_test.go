package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// exampleEnviron and exampleFiles have the secrets that examples name.
var exampleEnviron = []string{
	"SEARCH_TOKEN=" + strings.Repeat("s", 32), "COLLECTOR_AUTH=Bearer x", "ALCHEMY_1=https://eth.example.org/v2/key-1", "ALCHEMY_2=https://eth.example.org/v2/key-2", "ALCHEMY_1_WS=wss://eth.example.org/v2/key-1", "NODE_KEY=key",
}

func exampleFiles(name string) ([]byte, fs.FileMode, error) {
	if !strings.Contains(name, "secrets/") {
		return nil, 0, fs.ErrNotExist
	}
	if filepath.Base(name) == "api-keys" {
		return []byte("# made by: printf %s \"$KEY\" | sha256sum\n" + strings.Repeat("5b", 32) + "  mobile-app  pro\n"), 0o600, nil
	}
	return []byte(name + strings.Repeat("-", 32) + "\n"), 0o600, nil
}

// weir.example.yaml can be loaded and has every section.
func TestRepositoryExample(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(repository, "weir.example.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse("weir.example.yaml", data, exampleEnviron, exampleFiles)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Warnings) > 0 {
		t.Error(c.Warnings[0])
	}
	for _, f := range fieldsOf(reflect.TypeFor[File]()) {
		if !strings.Contains(string(data), "\n"+f.name+":") && !strings.Contains(string(data), "\n# "+f.name+":") {
			t.Errorf("the example has no %s", f.name)
		}
	}
}

// The rules of the example for Envoy come to the server as they are written.
func TestEnvoyExample(t *testing.T) {
	c, err := Load(filepath.Join(repository, "docs/integrations/envoy-weir.yaml"), nil)
	if err != nil {
		t.Fatal(err)
	}
	live := c.Live()
	if err := live.Validate(); err != nil {
		t.Fatal(err)
	}
	edge := live.Envoy[0]
	login := edge.Descriptors[2].Descriptors[0].Limit
	if edge.Name != "edge" || !edge.Headers || edge.Compat || login.Unit.String() != "minute" || login.UnitMultiplier != 5 || login.RequestsPerUnit != 10 {
		t.Errorf("%+v, login %+v", edge, login)
	}
}
