package kv_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var updateAPI = flag.Bool("update-api", false, "rewrite docs/api.txt")

// apiFile lists what a program can use of the packages that promise compatibility.
const apiFile = "../docs/api.txt"

// TestNamesAreExportedAsListed compares the exported names of kv and kv/kvtest, with their types, with
// docs/api.txt. A line that is new there is an addition; a line that goes, or changes, breaks programs
// and is named in CHANGELOG.md. go test ./kv -run TestNamesAreExportedAsListed -update-api rewrites it.
func TestNamesAreExportedAsListed(t *testing.T) {
	var listing strings.Builder
	for _, dir := range []string{".", "kvtest"} {
		for _, line := range exported(t, dir) {
			fmt.Fprintln(&listing, line)
		}
	}
	if *updateAPI {
		require.NoError(t, os.WriteFile(apiFile, []byte(listing.String()), 0o644))
	}
	listed, err := os.ReadFile(apiFile)
	require.NoError(t, err)
	require.Equal(t, string(listed), listing.String(),
		"docs/api.txt is behind: go test ./kv -run TestNamesAreExported -update-api, "+
			"and a line in CHANGELOG.md")
}

// exported lists the exported names of a package, a line each.
func exported(t *testing.T, dir string) []string {
	t.Helper()
	l := &lister{t: t, fset: token.NewFileSet(), types: map[string]*ast.TypeSpec{},
		methods: map[string][]*ast.FuncDecl{}}
	names, err := fs.Glob(os.DirFS(dir), "*.go")
	require.NoError(t, err)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(l.fset, dir+"/"+name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		l.pkg = f.Name.Name
		for _, decl := range f.Decls {
			l.declared(decl)
		}
	}
	for name, spec := range l.types {
		if ast.IsExported(name) {
			l.typeLines(name, spec)
			l.methodLines(name, name, map[string]bool{})
		}
	}
	slices.Sort(l.lines)
	return slices.Compact(l.lines) // a file of each system may have the same name
}

// A lister lists the exported names of one package.
type lister struct {
	t       *testing.T
	fset    *token.FileSet
	pkg     string
	types   map[string]*ast.TypeSpec
	methods map[string][]*ast.FuncDecl // by the name of the receiver's type
	lines   []string
}

func (l *lister) add(format string, args ...any) {
	l.lines = append(l.lines, l.pkg+": "+fmt.Sprintf(format, args...))
}

// text is source code on one line.
func (l *lister) text(node any) string {
	var b bytes.Buffer
	require.NoError(l.t, printer.Fprint(&b, l.fset, node))
	return strings.Join(strings.Fields(b.String()), " ")
}

// declared lists constants, variables and functions, and keeps types and methods.
func (l *lister) declared(decl ast.Decl) {
	if f, ok := decl.(*ast.FuncDecl); ok {
		switch {
		case !f.Name.IsExported():
		case f.Recv == nil:
			l.add("func %s%s", f.Name.Name, l.signature(f))
		default:
			on := strings.TrimLeft(l.text(f.Recv.List[0].Type), "*")
			on, _, _ = strings.Cut(on, "[")
			l.methods[on] = append(l.methods[on], f)
		}
		return
	}
	g := decl.(*ast.GenDecl)
	for _, spec := range g.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			l.types[spec.Name.Name] = spec
		case *ast.ValueSpec:
			for _, name := range spec.Names {
				if name.IsExported() {
					l.add("%s %s", g.Tok, name.Name)
				}
			}
		}
	}
}

// signature is type parameters, parameters and results.
func (l *lister) signature(f *ast.FuncDecl) string {
	plain := &ast.FuncType{Params: f.Type.Params, Results: f.Type.Results}
	return l.params(f.Type.TypeParams) + strings.TrimPrefix(l.text(plain), "func")
}

// methodLines lists the methods of type on: its own, and those of the types that it embeds, under an
// alias too. seen are names that hide those below.
func (l *lister) methodLines(on, from string, seen map[string]bool) {
	for _, f := range l.methods[from] {
		if !seen[f.Name.Name] {
			seen[f.Name.Name] = true
			l.add("func (%s) %s%s", on, f.Name.Name, l.signature(f))
		}
	}
	spec := l.types[from]
	if spec == nil {
		return
	}
	if spec.Assign.IsValid() {
		l.methodLines(on, l.text(spec.Type), seen)
	}
	if under, ok := spec.Type.(*ast.StructType); ok {
		for _, field := range under.Fields.List {
			if len(field.Names) == 0 {
				l.methodLines(on, strings.TrimLeft(l.text(field.Type), "*"), seen)
			}
		}
	}
}

// typeLines lists a type, and each exported field and method of its declaration.
func (l *lister) typeLines(name string, spec *ast.TypeSpec) {
	kind, members := "", (*ast.FieldList)(nil)
	switch under := spec.Type.(type) {
	case *ast.StructType:
		kind, members = "struct", under.Fields
	case *ast.InterfaceType:
		kind, members = "interface", under.Methods
	default:
		kind = l.text(spec.Type)
		if spec.Assign.IsValid() {
			kind = "= " + kind
		}
	}
	l.add("type %s%s %s", name, l.params(spec.TypeParams), kind)
	if members == nil {
		return
	}
	for _, field := range members.List {
		tag := ""
		if field.Tag != nil {
			tag = " " + field.Tag.Value
		}
		for _, f := range field.Names {
			if f.IsExported() {
				l.add("type %s.%s %s%s", name, f.Name, l.text(field.Type), tag)
			}
		}
	}
}

// params are type parameters in brackets, or nothing.
func (l *lister) params(list *ast.FieldList) string {
	if list == nil {
		return ""
	}
	var parts []string
	for _, f := range list.List {
		var names []string
		for _, n := range f.Names {
			names = append(names, n.Name)
		}
		parts = append(parts, strings.Join(names, ", ")+" "+l.text(f.Type))
	}
	return "[" + strings.Join(parts, ", ") + "]"
}
