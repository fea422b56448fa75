package config

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// fieldDoc is a field with what the structs and their comments say about it. The schema
// and the documentation are made from it.
type fieldDoc struct {
	field
	comment string // one line; the name is the file's
}

// structDoc is a struct.
type structDoc struct {
	typ     reflect.Type
	comment string
	fields  []fieldDoc
}

// describe returns File and everything below it, in the order in which it is met.
func describe(t *testing.T) []structDoc {
	t.Helper()
	comments := readComments(t)
	var list []structDoc
	seen := map[reflect.Type]bool{}
	var visit func(reflect.Type)
	visit = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice || typ.Kind() == reflect.Map {
			typ = typ.Elem()
		}
		if isLeaf(typ) || seen[typ] {
			return
		}
		seen[typ] = true
		s := structDoc{typ: typ, comment: comments[typ.Name()]}
		for _, f := range fieldsOf(typ) {
			goField := typ.Field(f.index)
			comment := comments[typ.Name()+"."+goField.Name]
			rest, ok := strings.CutPrefix(comment, goField.Name+" ")
			if !ok {
				t.Errorf("%v.%s: the comment must begin with the name", typ, goField.Name)
			}
			s.fields = append(s.fields, fieldDoc{field: f, comment: f.name + " " + rest})
		}
		list = append(list, s)
		for _, f := range s.fields {
			visit(f.typ)
		}
	}
	visit(reflect.TypeFor[File]())
	return list
}

// readComments returns the comments of this package's types and fields on one line each.
func readComments(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	comments := map[string]string{}
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			decl, ok := n.(*ast.GenDecl)
			if !ok || decl.Tok != token.TYPE {
				return true
			}
			for _, spec := range decl.Specs {
				typ := spec.(*ast.TypeSpec)
				comments[typ.Name.Name] = oneLine(decl.Doc.Text())
				structure, ok := typ.Type.(*ast.StructType)
				if !ok {
					continue
				}
				for _, f := range structure.Fields.List {
					for _, n := range f.Names {
						comments[typ.Name.Name+"."+n.Name] = oneLine(f.Doc.Text())
					}
				}
			}
			return false
		})
	}
	return comments
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// typeName returns what people call a type.
func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return typeName(t.Elem())
	case reflect.Slice:
		return "list of " + plural(typeName(t.Elem()))
	case reflect.Map:
		return "map of " + plural(typeName(t.Elem()))
	}
	if e, ok := as[enum](t); ok {
		return strings.Join(e.choices(), " \\| ")
	}
	switch reflect.New(t).Interface().(type) {
	case *Duration:
		return "duration"
	case *MaxWait:
		return "duration \\| off"
	case *URL:
		return "URL"
	case *Until:
		return "date \\| time"
	case *Per:
		return "duration \\| day \\| week \\| month \\| year"
	case *Zone:
		return "time zone"
	case *Percent:
		return "percentage"
	case *Share:
		return "percentage \\| number"
	case *Initial:
		return "full \\| empty \\| percentage"
	case *SocketMode:
		return "permissions"
	case *Nodes:
		return "auto \\| number"
	case *Secret:
		return "secret"
	case *Path:
		return "path"
	case *CostTable:
		return "name \\| path"
	case *Threshold:
		return "percentage \\| off"
	case *Amount, *Credit:
		return "number"
	case *Address:
		return "address"
	case *Proxy:
		return "CIDR \\| unix"
	}
	switch t.Kind() {
	case reflect.Struct:
		return "[" + t.Name() + "](#" + strings.ToLower(t.Name()) + ")"
	case reflect.Bool:
		return "true \\| false"
	case reflect.String:
		return "text"
	}
	return "number"
}

func plural(name string) string {
	switch {
	case strings.HasPrefix(name, "["), strings.Contains(name, "|"):
		return name
	case strings.HasPrefix(name, "map of "):
		return "maps" + strings.TrimPrefix(name, "map")
	case strings.HasSuffix(name, "s"):
		return name + "es"
	}
	return name + "s"
}

// typed returns a default as JSON has it.
func typed(f fieldDoc) any {
	t := f.typ
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if i, err := strconv.Atoi(f.fallback); err == nil && isNumber(t) {
		return i
	}
	if x, err := strconv.ParseFloat(f.fallback, 64); err == nil && t.Kind() == reflect.Float64 {
		return x
	}
	if t.Kind() == reflect.Bool {
		return f.fallback == "true"
	}
	return f.fallback
}

func isNumber(t reflect.Type) bool {
	_, isText := as[textual](t)
	return !isText && t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64
}
