package salvage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/txn"
	"github.com/ebbkv/ebb/wal"
)

// Options choose what is saved. The zero value saves the rows of the last checkpoint.
type Options struct {
	FS vfs.FS // nil: vfs.OS
	// Log applies the commits of the log, up to damage in it. Without a meta page there is no place
	// to begin at.
	Log bool
	// Stale also saves rows of pages of which nothing says that they are in use, or that they are not
	// of the engine's own trees, into families lost+found-1, lost+found-2, ... They may be rows that
	// were deleted, or that were never committed.
	Stale  bool
	NoLock bool // take no lock on the damaged store
	// Progress is called with bytes that were read, about total in the end. It may be nil.
	Progress func(done, total int64)
	Engine   txn.Options // of the new store: for tests
}

// rescue is one Run.
type rescue struct {
	ctx    context.Context
	o      Options
	path   string
	src    *pager.RawFile
	view   *view
	meta   *pager.Meta // of the state that is saved; nil: unknown
	report *Report

	table    *table
	trees    map[txn.TreeID]*treeState
	owner    map[txn.TreeID]*family
	families []*family
	metadata []metadataRow
	moved    map[txn.TreeID]txn.TreeID // trees with another number in the new store
	nextBase txn.TreeID                // of families for trees that belong to none

	lostBranches []*lostBranch
	pieces       []*piece                  // that belong to no known tree
	shared       map[pager.Pgid]txn.TreeID // pages of trees of older tables
	stale        []pager.Ref
	used, known  *pager.UsedSet

	out *output
}

// adoptedBase is where tree numbers of families begin that the damaged store did not have: behind
// those that its log may name.
const adoptedBase = 1 << 40

// Run makes a store at the path to, of what can be read of the store at the path from. It returns a
// report also of a store that is not whole. The new store appears under its name when it is complete:
// after an error or a crash there is none, or one under the name with the suffix .new, which the next
// Run removes. It has an id of its own.
//
// Errors: fs.ErrExist if there is a file at to, or a log beside it; vfs.ErrLocked;
// pager.ErrNotStore; pager.ErrVersion; those of writing the new store.
func Run(ctx context.Context, from, to string, o Options) (*Report, error) {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	src, err := pager.OpenRaw(o.FS, from, o.NoLock)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", from, err)
	}
	r := &rescue{
		ctx: ctx, o: o, path: from, src: src,
		report: &Report{PageSize: src.PageSize(), Families: []Family{}, Notes: []string{}},
		trees:  map[txn.TreeID]*treeState{}, owner: map[txn.TreeID]*family{},
		moved: map[txn.TreeID]txn.TreeID{}, shared: map[pager.Pgid]txn.TreeID{},
		nextBase: adoptedBase,
	}
	r.view = &view{RawFile: src, ctx: ctx, read: r.progress(), seen: pager.NewUsedSet(src.Pages())}
	err = r.plan()
	if err == nil {
		err = r.save(to)
	}
	if total := 2 * src.Bytes(); err == nil && o.Progress != nil {
		o.Progress(total, total)
	}
	return r.report, errors.Join(err, src.Close())
}

// progress counts bytes that are read. Each tree is read twice.
func (r *rescue) progress() func(bytes int) {
	done, total := int64(0), 2*r.src.Bytes()
	return func(bytes int) {
		if done += int64(bytes); r.o.Progress != nil {
			r.o.Progress(min(done, total), total)
		}
	}
}

// plan finds out what there is, and writes nothing.
func (r *rescue) plan() error {
	r.report.MetaPages = r.src.MetaPages()
	for _, step := range []func() error{
		r.findTrees, r.survey, r.findPieces, r.findFamilies, r.placePieces, r.readLog,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// save writes the new store under a temporary name, and gives it its own.
//
//	crash ...                            the directory holds
//	before the rename                    OUT.new, perhaps with a log OUT.new-wal-*
//	after the rename, before the sync    OUT.new or the whole store
//	of the directory
//	after that                           the whole store
func (r *rescue) save(to string) (err error) {
	if err := mustBeAbsent(r.o.FS, to); err != nil {
		return err
	}
	temp := to + ".new"
	if err := removeTemp(r.o.FS, temp); err != nil {
		return err
	}
	if r.out, err = newOutput(r.ctx, temp, r); err != nil {
		return err
	}
	if err = r.out.close(r.out.fill(r)); err == nil {
		if err = r.o.FS.Rename(temp, to); err == nil {
			r.report.Whole = r.report.whole()
			return r.o.FS.SyncDir(dirOf(to))
		}
	}
	return errors.Join(err, removeTemp(r.o.FS, temp))
}

// mustBeAbsent refuses a path with a store, or with the log of one: the next open would replay it.
func mustBeAbsent(fsys vfs.FS, path string) error {
	if _, err := fsys.Stat(path); err == nil {
		return fmt.Errorf("%s: %w", path, fs.ErrExist)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	log, err := wal.Files(fsys, path)
	if err == nil && len(log) > 0 {
		err = fmt.Errorf("%s, log of another store: %w", log[0], fs.ErrExist)
	}
	return err
}

// removeTemp removes what an earlier Run has left, unless that goes on.
func removeTemp(fsys vfs.FS, temp string) error {
	f, err := fsys.Open(temp, vfs.Write)
	if errors.Is(err, fs.ErrNotExist) {
		return wal.Remove(wal.Options{FS: fsys, Path: temp})
	}
	if err != nil {
		return err
	}
	if err = f.Lock(true); err == nil {
		err = errors.Join(wal.Remove(wal.Options{FS: fsys, Path: temp}), fsys.Remove(temp))
	}
	return errors.Join(err, f.Close())
}
