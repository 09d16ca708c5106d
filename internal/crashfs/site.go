package crashfs

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/ebbkv/ebb/internal/vfs"
)

// A site is a place in the source that called the disk. Its id is the package, the function and the
// ordinal of the call among the calls of its sort in that function, counted in the order of the
// source: the same for the dynamic and the static view, and stable when lines move.
type site struct {
	fn   string // as the runtime spells it
	file string
	line int
}

// stack is the innermost part of a call stack; deep enough to leave this package and vfs.
type stack [7]uintptr

// sites keeps what stacks and places were resolved to; it only ever grows, by the number of places
// in the source.
var sites = struct {
	sync.RWMutex
	stacks map[stack]*site
	places map[site]*site
}{stacks: map[stack]*site{}, places: map[site]*site{}}

// callingSite finds the innermost caller outside this package and vfs; nil if there is none.
func callingSite() *site {
	var pcs stack
	// Callers, callingSite and caller are skipped.
	n := runtime.Callers(3, pcs[:])
	sites.RLock()
	s, ok := sites.stacks[pcs]
	sites.RUnlock()
	if ok {
		return s
	}
	frames := runtime.CallersFrames(pcs[:n])
	for more := true; more && s == nil; {
		var frame runtime.Frame
		frame, more = frames.Next()
		if !strings.Contains(frame.Function, "/internal/crashfs.") &&
			!strings.Contains(frame.Function, "/internal/vfs.") {
			s = &site{fn: frame.Function, file: frame.File, line: frame.Line}
		}
	}
	sites.Lock()
	defer sites.Unlock()
	if s != nil {
		if same := sites.places[*s]; same != nil {
			s = same
		} else {
			sites.places[*s] = s
		}
	}
	sites.stacks[pcs] = s
	return s
}

// id names the site for a call of the given kind: "wal.(*Writer).flush#1" for the first sync in
// flush, and "wal.(*Writer).flush/1" for its first other call.
func (s *site) id(kind Kind) string {
	src := parsedSource(s.file)
	if src == nil {
		return fmt.Sprintf("%s@%d", nameFromRuntime(s.fn), s.line)
	}
	names := callNames[kind]
	var best *call
	for i := range src.calls {
		c := &src.calls[i]
		if c.lo <= s.line && s.line <= c.hi && slices.Contains(names, c.name) &&
			(best == nil || best.value || !c.value) {
			best = c // Calls go before method values; the innermost call starts last.
		}
	}
	if best != nil {
		return best.id()
	}
	return fmt.Sprintf("%s@%d", nameFromRuntime(s.fn), s.line)
}

// syncNames are the calls that are counted as syncs, with their number of arguments; changeNames
// all others.
var (
	syncNames   = map[string]int{"Sync": 0, "SyncData": 0, "SyncDir": 1}
	changeNames = []string{"WriteAt", "WriteFull", "Truncate", "Open", "Remove", "Rename"}

	// callNames says how a kind of operation is spelt in source.
	callNames = map[Kind][]string{
		KindSync: {"Sync"}, KindSyncData: {"SyncData"}, KindSyncDir: {"SyncDir"},
		KindWrite: {"WriteAt", "WriteFull"}, KindDirect: {"WriteAt", "WriteFull"},
		KindWrite | KindDirect: {"WriteAt", "WriteFull"},
		KindTruncate:           {"Truncate"}, KindCreate: {"Open"}, KindRemove: {"Remove"},
		KindRename: {"Rename"},
		KindOpen: {
			"Open",
		}, KindOpen | KindCreate: {"Open"}, KindRead: {"ReadAt", "ReadFull"}, KindSize: {"Size", "ID"},
		KindStat: {"Stat"}, KindList: {"List"}, KindLock: {"Lock"}, KindClose: {"Close"},
		KindWriteBack: {"WriteBack", "StartWriteBack"},
	}
)

// source is what we know of one file: its calls, in order of their start.
type source struct {
	pkg   string
	calls []call
}

type call struct {
	fn      string // package and function
	name    string
	sync    bool
	ordinal int // within fn and sort, from 1
	// value is set for a method value of a sync (f.Sync without parentheses): its call site is
	// unknown, so it stands for all lines of its function.
	value  bool
	lo, hi int // lines
	sel    *ast.SelectorExpr
}

func (c *call) id() string {
	if c.sync {
		return fmt.Sprintf("%s#%d", c.fn, c.ordinal)
	}
	return fmt.Sprintf("%s/%d", c.fn, c.ordinal)
}

var (
	sourcesMu sync.Mutex
	sources   = map[string]*source{} // by path; nil where it cannot be read
)

func parsedSource(path string) *source {
	sourcesMu.Lock()
	defer sourcesMu.Unlock()
	src, ok := sources[path]
	if !ok {
		fset := token.NewFileSet()
		if f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution); err == nil {
			src = callsOf(fset, f)
		}
		sources[path] = src
	}
	return src
}

// callsOf lists the calls of a file that look like calls of a file system. Closures count as their
// function.
func callsOf(fset *token.FileSet, f *ast.File) *source {
	src := &source{pkg: f.Name.Name}
	for _, decl := range f.Decls {
		fn := src.pkg + ".init"
		if d, ok := decl.(*ast.FuncDecl); ok {
			fn = src.pkg + "." + receiver(d) + d.Name.Name
		}
		syncs, others := 0, 0
		called := map[*ast.SelectorExpr]bool{}
		ast.Inspect(decl, func(n ast.Node) bool {
			c := call{fn: fn}
			args := -1
			switch n := n.(type) {
			case *ast.CallExpr:
				switch fun := n.Fun.(type) {
				case *ast.SelectorExpr:
					c.name, c.sel = fun.Sel.Name, fun
					called[fun] = true
				case *ast.Ident:
					c.name = fun.Name
				}
				args = len(n.Args)
				c.lo, c.hi = fset.Position(n.Pos()).Line, fset.Position(n.End()).Line
			case *ast.SelectorExpr:
				if called[n] {
					return true
				}
				c.name, c.sel, c.value = n.Sel.Name, n, true
				c.lo, c.hi = fset.Position(decl.Pos()).Line, fset.Position(decl.End()).Line
			default:
				return true
			}
			want, isSync := syncNames[c.name]
			switch {
			case isSync && (c.value || args == want):
				syncs++
				c.sync, c.ordinal = true, syncs
			case !c.value && slices.Contains(changeNames, c.name):
				others++
				c.ordinal = others
			default:
				return true
			}
			src.calls = append(src.calls, c)
			return true
		})
	}
	return src
}

// receiver spells the receiver as the runtime does, with its dot.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return ""
	}
	star := false
	typ := d.Recv.List[0].Type
	for {
		switch t := typ.(type) {
		case *ast.StarExpr:
			star, typ = true, t.X
			continue
		case *ast.ParenExpr:
			typ = t.X
			continue
		case *ast.IndexExpr:
			typ = t.X
			continue
		case *ast.IndexListExpr:
			typ = t.X
			continue
		case *ast.Ident:
			if star {
				return "(*" + t.Name + ")."
			}
			return t.Name + "."
		}
		return "?."
	}
}

var closure = regexp.MustCompile(`(\[\.\.\.\]|\.func\d+.*|\.gowrap\d+|\.deferwrap\d+|-range\d+.*|-fm)`)

func nameFromRuntime(fn string) string {
	return closure.ReplaceAllString(fn[strings.LastIndexByte(fn, '/')+1:], "")
}

// StaticSyncSites lists the ids of all calls of Sync, SyncData and SyncDir on vfs values in the
// non-test files of the packages in dirs, sorted. Methods of the same names that the packages
// declare themselves on concrete types are not meant; a call of unknown type is.
func StaticSyncSites(dirs ...string) ([]string, error) {
	c := &checker{fset: token.NewFileSet(), pkgs: map[string]*types.Package{}, info: &types.Info{
		Selections: map[*ast.SelectorExpr]*types.Selection{},
	}}
	var ids []string
	for _, dir := range dirs {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, err
		}
		if err := c.findModule(abs); err != nil {
			return nil, err
		}
		rel, err := filepath.Rel(c.root, abs)
		if err != nil {
			return nil, err
		}
		_, files, err := c.check(filepath.ToSlash(filepath.Join(c.module, rel)), abs)
		if err != nil {
			return nil, fmt.Errorf("list sync sites of %s: %w", dir, err)
		}
		for _, f := range files {
			for _, call := range callsOf(c.fset, f).calls {
				if call.sync && c.onFileSystem(&call) {
					ids = append(ids, call.id())
				}
			}
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// checker types as much as is needed to tell a vfs.File from others. Packages outside the module
// are taken as empty; what depends on them stays unknown.
type checker struct {
	fset   *token.FileSet
	root   string // directory of go.mod
	module string // path of the module
	pkgs   map[string]*types.Package
	info   *types.Info
}

var moduleLine = regexp.MustCompile(`(?m)^module\s+(\S+)`)

func (c *checker) findModule(dir string) error {
	if c.root != "" {
		return nil
	}
	for {
		f, err := vfs.OS.Open(filepath.Join(dir, "go.mod"), 0)
		if err == nil {
			size, err := f.Size()
			text := make([]byte, size)
			err = errors.Join(err, vfs.ReadFull(f, text, 0), f.Close())
			m := moduleLine.FindSubmatch(text)
			if err != nil || m == nil {
				return errors.Join(fmt.Errorf("no module line in %s", filepath.Join(dir, "go.mod")), err)
			}
			c.root, c.module = dir, string(m[1])
			return nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return errors.New("no go.mod above the package")
		}
		dir = parent
	}
}

func (c *checker) check(path, dir string) (*types.Package, []*ast.File, error) {
	listed, err := build.ImportDir(dir, 0)
	if err != nil {
		return nil, nil, err
	}
	var files []*ast.File
	for _, name := range listed.GoFiles {
		f, err := parser.ParseFile(c.fset, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, nil, err
		}
		files = append(files, f)
	}
	// Errors are expected, see checker; what could be typed is in info all the same.
	conf := types.Config{Importer: c, Error: func(error) {}, IgnoreFuncBodies: false}
	pkg, _ := conf.Check(path, c.fset, files, c.info)
	c.pkgs[path] = pkg
	return pkg, files, nil
}

// Import implements types.Importer.
func (c *checker) Import(path string) (*types.Package, error) {
	if pkg := c.pkgs[path]; pkg != nil {
		return pkg, nil
	}
	if rel, ok := strings.CutPrefix(path, c.module+"/"); ok {
		if pkg, _, err := c.check(path, filepath.Join(c.root, filepath.FromSlash(rel))); err == nil {
			return pkg, nil
		}
	}
	name := path[strings.LastIndexByte(path, '/')+1:]
	pkg := types.NewPackage(path, name)
	pkg.MarkComplete()
	c.pkgs[path] = pkg
	return pkg, nil
}

// onFileSystem reports whether the sync is one of vfs, or of an interface that a file system could
// stand behind.
func (c *checker) onFileSystem(sync *call) bool {
	if sync.sel == nil {
		return false
	}
	s := c.info.Selections[sync.sel]
	if s == nil {
		return !sync.value // An option or constant that happens to have the name is no sync.
	}
	fn, ok := s.Obj().(*types.Func)
	if !ok {
		return false // A field.
	}
	if pkg := fn.Pkg(); pkg != nil && strings.HasSuffix(pkg.Path(), "/internal/vfs") {
		return true
	}
	return types.IsInterface(s.Recv())
}
