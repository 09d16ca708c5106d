package kv_test

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
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
