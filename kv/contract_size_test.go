package kv_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
)

const (
	mostColumns, mostFileLines, mostFuncLines = 110, 450, 80
	mostMethods                               = 60 // of a type, those of tests not counted
)

// sizeExceptions may be larger, for a reason.
var sizeExceptions = map[string]string{
	"kv.Tx":                "its methods are the promised names",
	"fuzz/hostile_test.go": "lines that are the bytes of an input",
}

// TestSourceStaysSmall: lines, files, functions and types of all modules.
func TestSourceStaysSmall(t *testing.T) {
	racetest.OneGoroutine(t)
	methods := map[string]int{}
	files := sources(t, func(name, text string) {
		lines := strings.Split(text, "\n")
		require.LessOrEqual(t, len(lines), mostFileLines+1, name)
		for i, line := range lines {
			if sizeExceptions[name] == "" && !strings.HasPrefix(name, "scripts/mutate/") { // it quotes code
				require.LessOrEqual(t, columns(line), mostColumns, "%s:%d", name, i+1)
			}
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			length := fset.Position(f.End()).Line - fset.Position(f.Pos()).Line + 1
			require.LessOrEqual(t, length, mostFuncLines, "%s in %s", f.Name.Name, name)
			if f.Recv != nil {
				methods[filepath.Dir(name)+"."+receiver(f)]++
			}
		}
	}, ".go")
	require.Greater(t, files, 500)
	for name, n := range methods {
		if sizeExceptions[name] == "" {
			require.LessOrEqual(t, n, mostMethods, name)
		}
	}
}

// columns is the width of a line with a tab stop each 4 columns.
func columns(line string) (n int) {
	for _, r := range line {
		if n++; r == '\t' {
			n = (n + 3) / 4 * 4
		}
	}
	return n
}

func receiver(f *ast.FuncDecl) string {
	of := f.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	switch generic := of.(type) {
	case *ast.IndexExpr:
		of = generic.X
	case *ast.IndexListExpr:
		of = generic.X
	}
	return of.(*ast.Ident).Name
}
