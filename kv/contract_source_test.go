package kv_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// retiredNames are identifiers of a private dialect, each with the standard term that took its place.
var retiredNames = map[string]string{
	"scout": "prefetcher", "hand": "pageWriter", "hands": "parallelApplier",
	"summon": "startWorkers", "lend": "joinJob",
	"foretell": "encodeRedo", "Foretell": "EncodeRedo", "foretold": "encoded",
	"LogAhead": "SubmitLog", "MayLogAhead": "CanSubmitLog",
	"takeBack": "revoke", "giveWay": "throttle", "awaitSeen": "waitVisible",
	"unsettled":      "hasUnsyncedSegments",
	"awaitsSettling": "waitsForSegmentSync", "putter": "insertOp", "cutter": "rangeDeleter",
	"mover": "relocator",
	"loose": "detachedCell", "spot": "cellPos", "lookahead": "leafPrefetch",
	"Keeper": "UndoWriter", "stash": "undoBuffer", "distrust": "invalidateVerified",
	"doubts": "verifyGeneration",
	"letGo":  "dropFromPageCache", "garbage": "deadRanges", "Backlog": "startWriteBack",
	"relief": "frameReclaimer", "relieved": "framesAvailable",
	"crew": "waitGroup", "reap": "reclaimFreed", "rising": "ascendingRun",
	"asPlainPut": "fastDecodePut", "shot": "writeRequest", "shots": "oneShot", "shoot": "submit",
	"allAlone": "runSeparately",
	"inDoubt":  "markUnknown", "alike": "sameKind", "doomed": "purgeBatch", "Swept": "PurgeStats",
	"teller": "expireNotifier",
	"begin0": "initStore", "fence": "invalidateStaleMeta", "sameEnd": "checkSameCommit", "retried": "isRetry",
	"leftovers": "removeObsolete", "Ways": "batchDescent", "bend": "invalidate", "bent": "invalid",
	"Finger": "InsertCursor",
	"finger": "insertCursor", "trail": "path", "Launch": "SubmitWrite", "Launched": "PendingWrite",
	"flight": "inflightWrite",
	"flying": "inflight", "depart": "startWrite", "dismiss": "finishWrite",
	"grounded": "freeInflight", "straight": "directIO",
	"witness": "durabilityEvidence", "joint": "segmentLink", "strangers": "foreign",
	"Refers": "AddExternalRef", "owed": "unsyncedRefs", "Strike": "TryFree",
	"Promise": "OfferReusable", "Unmet": "Cold",
	"sparing": "directRead", "Patchable": "CanDelta", "PatchBeside": "NewDelta",
	"laid": "leafRunPages", "mayLay": "canAppendLeafRun",
	"proveFreed": "validateFreed", "prove": "verify", "freedRun": "deferredFree", "hollow": "empty",
	"rooms": "packages", "cupboards": "leaf packages",
}

// retiredProse are words of the dialect in comments and documents, and persons as the subject where
// a component acts.
var retiredProse = regexp.MustCompile(`(?i)\b(who|whoever|whom|nobody|` +
	`somebody|anybody|everybody|foretold|foretells?|scouts?|hears? of)\b`)

// proseExceptions are the lines that may stay: a part of the line, and the reason.
var proseExceptions = map[string]string{
	"retiredProse": "this test",
}

// sources visits every file of the repository with one of the extensions, test data aside.
func sources(t *testing.T, visit func(path string, text string), extensions ...string) (files int) {
	t.Helper()
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "run" || d.Name() == "bin" ||
			strings.HasPrefix(d.Name(), ".") && path != root):
			return filepath.SkipDir
		case d.IsDir() || !slices.Contains(extensions, filepath.Ext(path)):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		files++
		visit(filepath.ToSlash(name), string(text))
		return err
	}))
	return files
}

// TestNamesAreOfTheField: the code once had a vocabulary of its own that no engineer could search
// for. Its words do not come back as identifiers.
func TestNamesAreOfTheField(t *testing.T) {
	racetest.OneGoroutine(t)
	declared := 0
	files := sources(t, func(path, text string) {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, text, parser.SkipObjectResolution)
		require.NoError(t, err)
		check := func(id *ast.Ident) {
			declared++
			if better, retired := retiredNames[id.Name]; retired {
				t.Errorf("%s: the name %s is retired: %s, or another standard term",
					fset.Position(id.Pos()), id.Name, better)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				check(n.Name)
			case *ast.TypeSpec:
				check(n.Name)
			case *ast.ValueSpec:
				for _, id := range n.Names {
					check(id)
				}
			case *ast.Field:
				for _, id := range n.Names {
					check(id)
				}
			case *ast.AssignStmt:
				for _, e := range n.Lhs {
					if id, ok := e.(*ast.Ident); ok && n.Tok == token.DEFINE {
						check(id)
					}
				}
			}
			return true
		})
	}, ".go")
	require.Greater(t, files, 400)
	require.Greater(t, declared, 20000)
}

// TestProseNamesComponents: in comments and documents a component or a caller acts, never a person
// without a name.
func TestProseNamesComponents(t *testing.T) {
	racetest.OneGoroutine(t)
	check := func(path string, line int, text string) {
		word := retiredProse.FindString(text)
		if word == "" {
			return
		}
		for part := range proseExceptions {
			if strings.Contains(text, part) {
				return
			}
		}
		t.Errorf("%s:%d: %q in %q", path, line, word, strings.TrimSpace(text))
	}
	files := sources(t, func(path, text string) {
		if strings.HasSuffix(path, ".md") {
			for i, line := range strings.Split(text, "\n") {
				check(path, i+1, line)
			}
			return
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, group := range file.Comments {
			for _, c := range group.List {
				check(path, fset.Position(c.Pos()).Line, c.Text)
			}
		}
	}, ".go", ".md")
	require.Greater(t, files, 450)
}
