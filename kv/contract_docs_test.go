package kv_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
)

// userDocuments are those that tell a user what to write.
func userDocuments(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"../*.md", "../docs/*.md"} {
		names, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range names {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			all[filepath.Base(name)] = string(text)
		}
	}
	require.Greater(t, len(all), 10)
	return all
}

// snippetFrame is a program around the lines of a document, which name some usual variables.
const snippetFrame = `package main

import (
	"context"
	"io"
	"time"

	"github.com/ebbkv/ebb/kv"
)

var _ time.Time

func main() {}

func snippet(ctx context.Context, db *kv.DB, tx *kv.Tx, file io.Writer, key, value []byte) {
%s%s}
`

// TestGoOfTheDocumentsCompiles type-checks each block of Go in the documents: a whole program, or
// statements.
func TestGoOfTheDocumentsCompiles(t *testing.T) {
	racetest.OneGoroutine(t)
	if testing.Short() {
		t.Skip("it runs go vet")
	}
	block := regexp.MustCompile("(?s)```go\n(.*?)```")
	blocks := 0
	for name, text := range userDocuments(t) {
		for _, m := range block.FindAllStringSubmatch(text, -1) {
			source := m[1]
			if !strings.HasPrefix(source, "package ") {
				source = framed(t, name, source)
			}
			file := filepath.Join(t.TempDir(), "main.go")
			require.NoError(t, os.WriteFile(file, []byte(source), 0o600))
			out, err := exec.Command("go", "vet", "-assign", file).CombinedOutput()
			require.NoError(t, err, "%s: %s\n%s", name, m[1], out)
			blocks++
		}
	}
	require.GreaterOrEqual(t, blocks, 3)
}

// framed is a program with these statements. Variables that they declare are used.
func framed(t *testing.T, name, statements string) string {
	t.Helper()
	source := fmt.Sprintf(snippetFrame, statements, "")
	f, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
	require.NoError(t, err)
	used := ""
	ast.Inspect(f, func(n ast.Node) bool {
		if assign, ok := n.(*ast.AssignStmt); ok && assign.Tok == token.DEFINE {
			for _, left := range assign.Lhs {
				used += "\t_ = " + left.(*ast.Ident).Name + "\n"
			}
		}
		_, inner := n.(*ast.FuncLit)
		return !inner
	})
	return fmt.Sprintf(snippetFrame, statements, used)
}

// apiNames has what docs/api.txt lists: "DB.Put" and "Options.Clock" for methods and fields, "Open" for
// the rest, and each of them under "?.Put" too.
func apiNames(t *testing.T) map[string]bool {
	t.Helper()
	listed, err := os.ReadFile(apiFile)
	require.NoError(t, err)
	names := map[string]bool{}
	member := regexp.MustCompile(`^kv: (?:func \((\w+)\) |type (\w+)\.)(\w+)`)
	plain := regexp.MustCompile(`^kv: (?:func|type|const|var) (\w+)`)
	for line := range strings.Lines(string(listed)) {
		if m := member.FindStringSubmatch(line); m != nil {
			names[m[1]+m[2]+"."+m[3]], names["?."+m[3]] = true, true
		} else if m := plain.FindStringSubmatch(line); m != nil {
			names[m[1]], names["?."+m[1]] = true, true
		}
	}
	require.Greater(t, len(names), 400)
	return names
}

// variables of the documents, and the types that they may have.
var documentVariables = map[string][]string{
	"db": {"DB"}, "tx": {"Tx"}, "f": {"CF", "Family"}, "DB": {"DB"}, "Tx": {"Tx"}, "CF": {"CF"},
	"Options": {"Options"}, "CFOptions": {"CFOptions"}, "PutOptions": {"PutOptions"},
}

// TestDocumentsCallWhatIsExported: a method that a document calls on a store, a transaction or a family
// is one of theirs, and kv.Name is a name of the package. In the tables of docs/migrating.md the first
// column is another library's.
func TestDocumentsCallWhatIsExported(t *testing.T) {
	names := apiNames(t)
	code := regexp.MustCompile("`([^`\n]+)`")
	call := regexp.MustCompile(`(?:^|[^\w.])(\w+)\.([A-Z]\w*)`)
	sentinel := regexp.MustCompile(`^Err[A-Z]\w+$`)
	bare := regexp.MustCompile(`(?:^|[^\w.])([A-Z]\w+)\(`)
	calls := map[string]int{}
	for name, text := range userDocuments(t) {
		ours := name == "migrating.md" || name == "cookbook.md"
		for line := range strings.Lines(text) {
			if name == "migrating.md" && strings.HasPrefix(line, "|") {
				_, line, _ = strings.Cut(line, " | ")
			}
			for _, span := range code.FindAllStringSubmatch(line, -1) {
				if sentinel.MatchString(span[1]) {
					require.True(t, names[span[1]], "%s: there is no %s", name, span[1])
				}
				for _, m := range call.FindAllStringSubmatch(span[1], -1) {
					types, known := documentVariables[m[1]]
					if m[1] == "kv" {
						require.True(t, names[m[2]], "%s: kv.%s", name, m[2])
						calls[name]++
					} else if known {
						there := slices.ContainsFunc(types, func(on string) bool {
							return names[on+"."+m[2]]
						})
						require.True(t, there, "%s: %s has no %s", name, m[1], m[2])
						calls[name]++
					}
				}
				for _, m := range bare.FindAllStringSubmatch(span[1], -1) {
					require.True(t, !ours || names["?."+m[1]], "%s: there is no %s", name, m[1])
				}
			}
		}
	}
	for _, name := range []string{"migrating.md", "README.md", "backup.md", "ttl.md"} {
		require.NotZero(t, calls[name], "%s calls nothing", name)
	}
}

// TestCookbookListsTheExamples: each recipe is an Example with an output, and each Example of
// cookbook_example_test.go is a recipe.
func TestCookbookListsTheExamples(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	fset, examples, recipes := token.NewFileSet(), map[string]bool{}, map[string]bool{}
	for _, name := range files {
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, e := range doc.Examples(f) {
			examples[e.Name] = e.Output != ""
			if name == "cookbook_example_test.go" {
				recipes[e.Name] = true
			}
		}
	}
	row := regexp.MustCompile("(?m)^\\| [^|]+ \\| `([\\w.]+)(?: \\((\\w+)\\))?` \\|")
	for _, m := range row.FindAllStringSubmatch(userDocuments(t)["cookbook.md"], -1) {
		name := strings.ReplaceAll(m[1], ".", "_")
		if suffix := []rune(m[2]); len(suffix) > 0 {
			suffix[0] = unicode.ToLower(suffix[0])
			name += "_" + string(suffix)
		}
		printed, there := examples[name]
		require.True(t, there && printed, "docs/cookbook.md: Example%s is not there, or prints nothing", name)
		delete(recipes, name)
	}
	require.Empty(t, recipes, "not in docs/cookbook.md")
}

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
