package kv_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
var libraries = []string{"github.com/google/btree", "golang.org/x/sys", "github.com/cespare/xxhash/v2"}

// goList runs go list over the library and returns one line for each package.
func goList(t *testing.T, format string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", format, module+"...").Output()
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

func TestImports(t *testing.T) {
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
	"golang.org/x/sys/unix": {
		"Mmap",
		"Munmap",
		"MmapPtr",
		"MunmapPtr",
		"Madvise",
		"PROT_READ",
		"PROT_WRITE",
		"MAP_ANON",
		"MAP_PRIVATE",
		"MAP_NORESERVE",
		"MADV_HUGEPAGE",
		"MADV_POPULATE_WRITE",
		"MADV_DONTNEED",
		"MADV_FREE",
	},
	"golang.org/x/sys/windows": {
		"VirtualAlloc",
		"VirtualFree",
		"MEM_COMMIT",
		"MEM_RESERVE",
		"MEM_RELEASE",
		"PAGE_READWRITE",
	},
}

// TestNoDirectIO reads the sources of every package: files are accessed through internal/vfs only.
// Anonymous memory is not a file.
func TestNoDirectIO(t *testing.T) {
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
			require.Contains(
				t,
				machine[local[id.Name]],
				sel.Sel.Name,
				"%s uses %s.%s",
				fset.Position(n.Pos()),
				id.Name,
				sel.Sel.Name,
			)
		}
		return true
	})
}

// TestEveryFuzzTargetIsBounded reads the sources of every package: each fuzz target bounds its memory
// and time, for any input. Otherwise an allocation of the size that the input names is no failure.
func TestEveryFuzzTargetIsBounded(t *testing.T) {
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
				require.True(t, slices.ContainsFunc(bounded, func(s string) bool { return strings.Contains(body, s) }),
					"%s: %s has no bound", file, f.Name.Name)
			}
		}
	}
	require.GreaterOrEqual(t, found, 15)
}
