package kv_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
)

const module = "github.com/ebbkv/ebb/"

// leafPackages are used by every package and import none.
var leafPackages = []string{
	"internal/vfs",
	"internal/badfile",
	"internal/invariant",
	"internal/offheap",
	"internal/prefetch",
	"internal/mapfault",
	"internal/keyorder",
	"internal/memlimit",
}

// packages lists the imports that each package may have. To relax it is a design decision.
var packages = map[string][]string{
	"internal/badfile":   {},
	"internal/invariant": {},
	"internal/keyorder":  {},
	"internal/mapfault":  {},
	"internal/memlimit":  {},
	"internal/offheap":   {},
	"internal/prefetch":  {},
	"internal/vfs":       {},

	"pager": {},
	"wal":   {},
	"btree": {"pager"},
	"txn":   {"pager", "wal", "btree"},
	"cf":    {"txn"},
	"ttl":   {"cf", "txn"},
	"kv":    {"cf", "ttl", "txn", "internal/openhook"},

	"internal/openhook": {"txn"},
}

// libraries are all that the library may need beside the standard one.
var libraries = []string{"golang.org/x/sys", "github.com/cespare/xxhash/v2"}

// goList runs go list over the library and returns one line for each package.
func goList(t *testing.T, format string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", format, module+"...").Output()
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

func TestImports(t *testing.T) {
	racetest.OneGoroutine(t)
	seen := 0
	for _, line := range goList(t, `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`) {
		fields := strings.Fields(line)
		pkg := strings.TrimPrefix(fields[0], module)
		may, known := packages[pkg]
		if !known {
			continue // tools and simulated disks: they may import every package
		}
		seen++
		for _, path := range fields[1:] {
			inside, ours := strings.CutPrefix(path, module)
			switch {
			case ours:
				require.True(t, slices.Contains(may, inside) || slices.Contains(leafPackages, inside),
					"%s imports %s", pkg, inside)
			case strings.Contains(path, "."):
				require.True(t, slices.ContainsFunc(libraries, func(l string) bool {
					return path == l || strings.HasPrefix(path, l+"/")
				}), "%s imports %s", pkg, path)
			}
		}
	}
	require.Greater(t, seen, 8, "packages that exist")
}

// machine lists the packages by which a package could bypass the vfs, and the names of them that it
// may use: those that do not concern files.
var machine = map[string][]string{
	"os":        {"Getpagesize"},
	"io/ioutil": {},
	"syscall":   {},
	"golang.org/x/sys/unix": {"Mmap", "Munmap", "MmapPtr", "MunmapPtr", "Madvise", "PROT_READ",
		"PROT_WRITE", "MAP_ANON", "MAP_PRIVATE", "MAP_NORESERVE", "MADV_HUGEPAGE",
		"MADV_NOHUGEPAGE", "MADV_COLD", "MADV_DONTNEED", "MADV_FREE"},
	"golang.org/x/sys/windows": {"VirtualAlloc", "VirtualFree", "MEM_COMMIT", "MEM_RESERVE",
		"MEM_RELEASE", "PAGE_READWRITE"},
}

// TestNoDirectIO reads the sources of every package: files are accessed through internal/vfs only.
// Anonymous memory is not a file.
func TestNoDirectIO(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, line := range goList(t, `{{.ImportPath}} {{.Dir}}`) {
		name, dir, _ := strings.Cut(line, " ")
		pkg := strings.TrimPrefix(name, module)
		if _, known := packages[pkg]; !known || pkg == "internal/vfs" {
			continue
		}
		if pkg == "internal/memlimit" {
			continue // It reads files of the system, and none of a store.
		}
		files, err := filepath.Glob(filepath.Join(dir, "*.go")) // for every platform
		require.NoError(t, err)
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				noDirectIO(t, file)
			}
		}
	}
}

func noDirectIO(t *testing.T, file string) {
	t.Helper()
	fset := token.NewFileSet()
	src, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	local := map[string]string{} // name in this file -> path
	for _, spec := range src.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		require.NoError(t, err)
		if _, ok := machine[path]; !ok {
			continue
		}
		name := path[strings.LastIndex(path, "/")+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		require.NotContains(t, []string{".", "_"}, name, "%s: import of %s", file, path)
		local[name] = path
	}
	ast.Inspect(src, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if id, ok := sel.X.(*ast.Ident); ok && local[id.Name] != "" {
			require.Contains(t, machine[local[id.Name]], sel.Sel.Name, "%s uses %s.%s",
				fset.Position(n.Pos()), id.Name, sel.Sel.Name)
		}
		return true
	})
}

// TestEveryFuzzTargetIsBounded reads the sources of every package: each fuzz target bounds its memory
// and time, for any input. Otherwise an allocation of the size that the input names is no failure.
func TestEveryFuzzTargetIsBounded(t *testing.T) {
	racetest.OneGoroutine(t)
	// the last two of package fuzz call the first, or more
	bounded := []string{"bound.Hold(", "done(t, ", "hostileLooks("}
	found := 0
	for _, dir := range goList(t, `{{.Dir}}`) {
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		require.NoError(t, err)
		for _, file := range files {
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			src, err := parser.ParseFile(token.NewFileSet(), file, b, parser.SkipObjectResolution)
			require.NoError(t, err)
			for _, decl := range src.Decls {
				f, ok := decl.(*ast.FuncDecl)
				if !ok || !strings.HasPrefix(f.Name.Name, "Fuzz") {
					continue
				}
				found++
				body := string(b[f.Body.Pos()-1 : f.Body.End()-1])
				require.True(t, slices.ContainsFunc(bounded,
					func(s string) bool { return strings.Contains(body, s) }),
					"%s: %s has no bound", file, f.Name.Name)
			}
		}
	}
	require.GreaterOrEqual(t, found, 15)
}

var (
	fuzzCall  = regexp.MustCompile("go test[^`\n]* -fuzz[^`\n]*")
	fuzzFunc  = regexp.MustCompile(`(?m)^func (Fuzz[A-Za-z0-9]+)\(`)
	namedFile = regexp.MustCompile(
		"`((?:\\.ci|btree|cf|cmd|docs|fuzz|internal|kv|pager|scripts|ttl|txn|wal)/[^`\\s:]+)",
	)
	markdowned = regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)
)

// documents returns every Markdown file of the repository by its path from the root.
func documents(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"../*.md", "../docs/*.md", "../docs/adr/*.md"} {
		names, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range names {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			all[name] = string(text)
		}
	}
	require.Contains(t, all, "../docs/testing.md")
	return all
}

// TestDocumentedFuzzCommandsRunOneTarget: `go test -fuzz FuzzOps` from fuzz matched two targets and
// did not run, `go test -fuzz FuzzLeaf` from there matched none. Each documented command names one
// target with an anchored pattern, the package that has it, and `-run '^$'`, without which the
// suite runs first; and the command of each target is documented.
func TestDocumentedFuzzCommandsRunOneTarget(t *testing.T) {
	command := func(target, dir string) string {
		return "go test -run '^$' -fuzz '^" + target + "$' ./" + dir
	}
	there := map[string]bool{}
	files, err := filepath.Glob("../*/*_test.go")
	require.NoError(t, err)
	for _, name := range files {
		src, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, f := range fuzzFunc.FindAllSubmatch(src, -1) {
			there[command(string(f[1]), filepath.Base(filepath.Dir(name)))] = true
		}
	}
	require.Greater(t, len(there), 10)
	documented := map[string]bool{}
	for name, text := range documents(t) {
		for _, call := range fuzzCall.FindAllString(text, -1) {
			require.True(t, there[call], "%s: %q is the command of no target", name, call)
			documented[call] = true
		}
	}
	require.Equal(t, there, documented)
}

// TestFilesThatTheDocsNameExist: a path in backquotes that begins with a folder of the repository,
// and the target of each link. A path may hold * and {a,b}.
func TestFilesThatTheDocsNameExist(t *testing.T) {
	for name, text := range documents(t) {
		for _, m := range namedFile.FindAllStringSubmatch(text, -1) {
			path := strings.TrimRight(m[1], ",.;")
			found, err := filepath.Glob("../" + path)
			require.NoError(t, err)
			require.NotEmpty(t, found, "%s names %s", name, path)
		}
		for _, m := range markdowned.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			_, err := os.Stat(filepath.Join(filepath.Dir(name), m[1]))
			require.NoError(t, err, "%s links to %s", name, m[1])
		}
	}
}

// TestDocumentsStayShort: a first reader gets through them.
func TestDocumentsStayShort(t *testing.T) {
	all := documents(t)
	for name, most := range map[string]int{"README.md": 150, "CHANGELOG.md": 60, "docs/performance.md": 160} {
		require.LessOrEqual(t, strings.Count(all["../"+name], "\n"), most, name)
	}
}

// TestEveryDecisionIsInTheIndex with its title, and says what became of it.
func TestEveryDecisionIsInTheIndex(t *testing.T) {
	all := documents(t)
	index := all["../docs/adr/README.md"]
	require.NotEmpty(t, index)
	n := 0
	for name, text := range all {
		file := filepath.Base(name)
		if filepath.Base(filepath.Dir(name)) != "adr" || file == "README.md" {
			continue
		}
		title, _, _ := strings.Cut(text, "\n")
		number, title, ok := strings.Cut(strings.TrimPrefix(title, "# "), ": ")
		require.True(t, ok, name)
		require.True(t, strings.HasPrefix(file, number+"-"), name)
		row := "| [" + number + "](" + file + ") | " + title + " | "
		require.True(t, strings.Contains(index, row), "docs/adr/README.md has no row %q", row)
		n++
	}
	require.Equal(t, n, strings.Count(index, "\n| ["), "rows of the index")
}

var (
	faultRow  = regexp.MustCompile(`^\| F(\d+) \|`)
	namedTest = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`")
	testFunc  = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9]+)\(`)
)

// TestEveryFaultHasItsTest reads the table of docs/testing.md: each fault has one row with at least
// one test, and each test that a row names is there.
func TestEveryFaultHasItsTest(t *testing.T) {
	text, err := os.ReadFile("../docs/testing.md")
	require.NoError(t, err)
	there := testsOf(t, "..")
	last, model := 0, 0
	for line := range strings.Lines(string(text)) {
		row := faultRow.FindStringSubmatch(line)
		if row == nil {
			continue
		}
		number, err := strconv.Atoi(row[1])
		require.NoError(t, err)
		require.Greater(t, number, last, "faults are in order, one row each")
		if last = number; number <= 34 {
			model++
		}
		names := namedTest.FindAllStringSubmatch(line, -1)
		require.NotEmpty(t, names, "F%s has no test", row[1])
		for _, name := range names {
			require.True(t, there[name[1]], "F%s names %s, which is no test", row[1], name[1])
		}
	}
	require.Equal(t, 34, model, "faults from F1 to F34; later ones have a row once they have a test")
}

// testsOf lists the tests and fuzz targets in all source files below a directory.
func testsOf(t *testing.T, root string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	require.NoError(t, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		src, err := os.ReadFile(name)
		for _, f := range testFunc.FindAllSubmatch(src, -1) {
			all[string(f[1])] = true
		}
		return err
	}))
	return all
}
