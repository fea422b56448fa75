package weir_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// layers is the import table: imports go down, never sideways, never up. A
// package may import packages of lower layers only, so a new package starts by
// finding its line here. "." is package weir; "a/*" matches the children of a,
// "a/..." a and everything below it.
var layers = []layer{
	{rank: 0, packages: "clientip internal/fielderr internal/mono secret internal/shard internal/hist internal/topk internal/resp internal/jsonrpc internal/socket internal/svg"},
	{rank: 0, packages: "server/internal/strictjson"}, // before server/internal/*, which import it
	{rank: 1, packages: "algo"},
	{rank: 2, packages: "internal/compiled"},
	{rank: 3, packages: "."},
	{rank: 4, packages: "internal/storeapi"},
	{rank: 5, packages: "pacer prepaid queue"},
	{rank: 6, packages: "store/memstore tiered ruleset"},
	{rank: 7, packages: "budget guard blocklist"},
	{rank: 8, packages: "upstream weirhttp internal/mockrpc"},
	{rank: 9, packages: "internal/redisconn internal/rpcdetail internal/tracing"},
	{rank: 9, packages: "gen/...", kind: generated},
	{rank: 10, packages: "store/redisstore internal/identity internal/rpclimit"},
	{rank: 11, packages: "tiered/redistier budget/redisbudget guard/redisguard"},
	{rank: 11, packages: "blocklist/redisblock blocklist/gossipblock weirconnect weirgrpc weirprom client internal/load/target internal/load/measure"},
	{rank: 12, packages: "server/internal/call"}, // before server/internal/*, which import it
	{rank: 13, packages: "gateway internal/load server/internal/*"},
	{rank: 14, packages: "server"},
	{rank: 15, packages: "internal/config internal/overrides"},
	{rank: 16, packages: "internal/cli"},
	{rank: 17, packages: "cmd/weir"},
	{rank: 18, packages: "examples/...", kind: example},

	// A test helper stands just above what it exercises. Only tests and the
	// modules bench and faults import it.
	{rank: 7, packages: "store/storetest tiered/fleettest", kind: testHelper},
	{rank: 8, packages: "blocklist/blocktest", kind: testHelper},
	{rank: 11, packages: "internal/apitest internal/golden internal/redistest internal/tracetest", kind: testHelper},
}

// lastPure is the last rank that imports the standard library only, so that
// nobody who wants a token bucket downloads a Redis client.
const lastPure = 8

// impure lists the exceptions to lastPure: package, then what it may import.
var impure = map[string]string{
	"internal/jsonrpc": "github.com/tidwall/gjson",
}

// confined lists libraries that one package alone imports, and test helpers: a prefix of their paths, then that package.
var confined = map[string]string{
	"go.opentelemetry.io/": "internal/tracing",
}

const modulePath = "github.com/weirlimit/weir"

type layer struct {
	rank     int
	packages string // patterns, separated by spaces
	kind     kind
}

type kind int

const (
	ordinary   kind = iota
	generated       // its packages may import each other and need no package comment
	example         // imports what a user can import, so nothing internal
	testHelper      // may import test libraries; imported by tests only
)

// source is what the rules look at in one package. Test files do not count.
type source struct {
	dir      string              // slash-separated, "." for the root
	imports  map[string][]string // file name -> import paths
	comments []string            // files with a package comment
}

func TestImportsGoDown(t *testing.T) {
	for _, problem := range check(t, os.DirFS(".")) {
		t.Error(problem)
	}
}

// TestImportRules shows each rule an import that breaks it and one that does not.
func TestImportRules(t *testing.T) {
	tests := []struct {
		name, file, imports string
		want                string // part of the only problem, "" for none
	}{
		{"down", "weir.go", modulePath + "/algo", ""},
		{"up", "algo/a.go", modulePath, "algo/a.go (rank 1) imports weir (rank 3)"},
		{"sideways", "pacer/p.go", modulePath + "/queue", "(rank 5) imports queue (rank 5)"},
		{"sideways in a pattern", "server/internal/a/a.go", modulePath + "/server/internal/b", "(rank 13) imports server/internal/b (rank 13)"},
		{"no line", "util/u.go", "fmt", "package util has no line"},
		{"import without a line", "client/c.go", modulePath + "/util", "imports util, which has no line"},
		{"generated sideways", "gen/weir/v1/c/c.go", modulePath + "/gen/weir/v1", ""},
		{"generated up", "gen/a.go", modulePath + "/client", "(rank 9) imports client (rank 11)"},
		{"library in a low rank", "weirhttp/w.go", "example.com/x", "standard library only"},
		{"library in a high rank", "internal/redisconn/r.go", "example.com/x", ""},
		{"library by exception", "internal/jsonrpc/j.go", "github.com/tidwall/gjson", ""},
		{"library elsewhere", "internal/resp/r.go", "github.com/tidwall/gjson", "standard library only"},
		{"library in a helper", "store/storetest/s.go", "example.com/x", ""},
		{"confined library", "internal/tracing/t.go", "go.opentelemetry.io/otel", ""},
		{"confined library elsewhere", "client/c.go", "go.opentelemetry.io/otel", "but only internal/tracing does"},
		{"helper in a program", "internal/cli/c.go", modulePath + "/internal/redistest", "is a test helper"},
		{"helper in a test", "algo/a_test.go", modulePath + "/store/storetest", ""},
		{"public in an example", "examples/a/main.go", modulePath + "/server", ""},
		{"internal in an example", "examples/a/main.go", modulePath + "/internal/cli", "a user cannot import internal/cli"},
		{"hidden", ".bin/x.go", "example.com/x", ""},
		{"test data", "algo/testdata/x.go", "example.com/x", ""},
		{"another module", "bench/b.go", "example.com/x", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := fmt.Sprintf("// Package p.\npackage p\nimport %q\n", tt.imports)
			wantProblem(t, map[string]string{tt.file: text, "bench/go.mod": ""}, tt.want)
		})
	}
}

func TestPackageComments(t *testing.T) {
	const with, without = "// Package p.\npackage p\n", "package p\n"
	tests := []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"one", map[string]string{"algo/a.go": with, "algo/b.go": without}, ""},
		{"none", map[string]string{"algo/a.go": without, "algo/b.go": without}, "package algo has no package comment"},
		{"two", map[string]string{"algo/a.go": with, "algo/b.go": with}, "algo/a.go and algo/b.go"},
		{"in a test", map[string]string{"algo/a.go": without, "algo/a_test.go": with}, "has no package comment"},
		{"build tag", map[string]string{"algo/a.go": with, "algo/b.go": "//go:build linux\n\n" + without}, ""},
		{"generated", map[string]string{"gen/a.go": without}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { wantProblem(t, tt.files, tt.want) })
	}
}

func wantProblem(t *testing.T, files map[string]string, want string) {
	t.Helper()
	tree := fstest.MapFS{}
	for name, text := range files {
		tree[name] = &fstest.MapFile{Data: []byte(text)}
	}
	got := check(t, tree)
	if want == "" {
		if len(got) > 0 {
			t.Errorf("problems = %q, want none", got)
		}
		return
	}
	if len(got) != 1 || !strings.Contains(got[0], want) {
		t.Errorf("problems = %q, want one with %q", got, want)
	}
}

// check returns what is wrong with the module in tree, one sentence each.
func check(t *testing.T, tree fs.FS) (problems []string) {
	t.Helper()
	dirs, err := packageDirs(tree)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		src, err := readPackage(tree, dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(src.imports) > 0 {
			problems = append(problems, src.check()...)
		}
	}
	return problems
}

// packageDirs lists the directories that may hold packages of this module.
func packageDirs(tree fs.FS) (dirs []string, err error) {
	err = fs.WalkDir(tree, ".", func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if dir != "." && skipDir(tree, dir) {
			return fs.SkipDir
		}
		dirs = append(dirs, dir)
		return nil
	})
	return dirs, err
}

func skipDir(tree fs.FS, dir string) bool {
	name := path.Base(dir)
	if strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" {
		return true
	}
	_, err := fs.Stat(tree, path.Join(dir, "go.mod")) // a module of its own
	return err == nil
}

func readPackage(tree fs.FS, dir string) (source, error) {
	src := source{dir: dir, imports: map[string][]string{}}
	files, err := fs.Glob(tree, path.Join(dir, "*.go"))
	if err != nil {
		return src, err
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parseFile(tree, name)
		if err != nil {
			return src, err
		}
		src.imports[name] = importPaths(file)
		if strings.TrimSpace(file.Doc.Text()) != "" {
			src.comments = append(src.comments, name)
		}
	}
	return src, nil
}

func parseFile(tree fs.FS, name string) (*ast.File, error) {
	text, err := fs.ReadFile(tree, name)
	if err != nil {
		return nil, err
	}
	return parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly|parser.ParseComments)
}

func importPaths(file *ast.File) []string {
	paths := []string{}
	for _, spec := range file.Imports {
		paths = append(paths, strings.Trim(spec.Path.Value, "\"`"))
	}
	return paths
}

func (src source) check() (problems []string) {
	own, ok := layerOf(src.dir)
	if !ok {
		return []string{fmt.Sprintf("package %s has no line in the import table: choose the lowest rank "+
			"above everything it imports and add it to layers in deps_test.go", display(src.dir))}
	}
	for file, imports := range src.imports {
		for _, imported := range imports {
			if problem := checkImport(own, src.dir, imported); problem != "" {
				problems = append(problems, fmt.Sprintf("%s (rank %d) imports %s", file, own.rank, problem))
			}
		}
	}
	if own.kind != generated {
		problems = append(problems, src.checkComment()...)
	}
	slices.Sort(problems)
	return problems
}

// checkImport returns what is wrong with an import in dir, "" if nothing is.
func checkImport(own layer, dir, imported string) string {
	target, ours := ownPackage(imported)
	if !ours {
		return checkForeign(own, dir, imported)
	}
	other, ok := layerOf(target)
	switch {
	case !ok:
		return display(target) + ", which has no line in the import table in deps_test.go"
	case other.kind == testHelper:
		return target + ", but " + target + " is a test helper: only _test.go files, bench and faults may import it"
	case own.kind == example && strings.Contains("/"+target+"/", "/internal/"):
		return target + ", but an example shows what a user can write, and a user cannot import " + target
	case own.kind == generated && other.kind == generated:
		return ""
	case other.rank >= own.rank:
		return fmt.Sprintf("%s (rank %d), but imports go down only: declare a one-method interface "+
			"for what is needed and let server, gateway or the caller wire it", display(target), other.rank)
	}
	return ""
}

func checkForeign(own layer, dir, imported string) string {
	first, _, _ := strings.Cut(imported, "/")
	standard := !strings.Contains(first, ".")
	for prefix, only := range confined {
		if strings.HasPrefix(imported, prefix) && dir != only && own.kind != testHelper {
			return fmt.Sprintf("%s, but only %s does: add what is needed there", imported, only)
		}
	}
	if standard || own.rank > lastPure || own.kind == testHelper || impure[dir] == imported {
		return ""
	}
	return fmt.Sprintf("%s, but ranks 0 to %d import the standard library only: move what needs it to "+
		"a package of a higher rank", imported, lastPure)
}

func (src source) checkComment() []string {
	switch len(src.comments) {
	case 0:
		return []string{fmt.Sprintf("package %s has no package comment: say in doc.go what it is, its "+
			"smallest use, and when another package suits better", display(src.dir))}
	case 1:
		return nil
	}
	return []string{fmt.Sprintf("package %s has its package comment in %s: keep one, and put a blank line "+
		"between other comments and the package clause", display(src.dir), strings.Join(src.comments, " and "))}
}

// ownPackage turns an import path of this module into a directory.
func ownPackage(imported string) (dir string, ours bool) {
	if imported == modulePath {
		return ".", true
	}
	return strings.CutPrefix(imported, modulePath+"/")
}

func layerOf(dir string) (layer, bool) {
	for _, l := range layers {
		if slices.ContainsFunc(strings.Fields(l.packages), func(pattern string) bool { return matches(pattern, dir) }) {
			return l, true
		}
	}
	return layer{}, false
}

func matches(pattern, dir string) bool {
	if top, deep := strings.CutSuffix(pattern, "/..."); deep {
		return dir == top || strings.HasPrefix(dir, top+"/")
	}
	ok, _ := path.Match(pattern, dir)
	return ok
}

// display names a package as its users do.
func display(dir string) string {
	if dir == "." {
		return "weir"
	}
	return dir
}
