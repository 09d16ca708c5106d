package txn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/mapfault"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

// ReadBackup reads the header of a backup, and no more of r.
func ReadBackup(r io.Reader) (*Backup, error) {
	d, err := openBackup(r)
	if err != nil {
		return nil, err
	}
	return &d.Backup, nil
}

// A backupChain reads backups one after the other: a full one, and increments each of which builds
// on the one before it.
type backupChain struct {
	ctx     context.Context
	backups []io.Reader
	at      int
	d       *backupReader // the current one; nil before the first
	taken   []pager.BackupID
}

// next opens the next backup; io.EOF behind the last.
func (c *backupChain) next() error {
	if c.at == len(c.backups) {
		return io.EOF
	}
	if c.at > 0 {
		if err := c.skip(); err != nil {
			return err
		}
	}
	d, err := openBackup(c.backups[c.at])
	if err != nil {
		return err
	}
	c.at++
	switch before := c.d; {
	case before == nil && d.Base.ID != 0:
		return fmt.Errorf("%w: %s is an increment, a full backup comes first", ErrBackupBase, d.name)
	case before != nil && d.Base.ID == 0:
		return fmt.Errorf("%w: %s is a full backup, and not the first", ErrBackupBase, d.name)
	case before != nil && d.StoreID != before.StoreID:
		return fmt.Errorf("%w: %s is of store %x, the one before it of %x",
			ErrBackupBase, d.name, d.StoreID, before.StoreID)
	case before != nil && d.Base != before.ID:
		return fmt.Errorf("%w: %s builds on %v, the one before it is %v", ErrBackupBase, d.name,
			d.Base, before.ID)
	case before != nil && d.PageSize != before.PageSize:
		return d.corrupt(12, "page size %d, the store has %d", d.PageSize, before.PageSize)
	}
	c.d, c.taken = d, append(c.taken, d.ID)
	return nil
}

// skip reads the rest of the current backup.
func (c *backupChain) skip() error {
	for {
		switch _, _, err := c.pages(); {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// pages returns the next pages of the current backup; io.EOF behind the last, also when repeated.
func (c *backupChain) pages() (pager.Pgid, []byte, error) {
	if err := contextErr(c.ctx); err != nil {
		return 0, nil, err
	}
	if c.d.Bytes > 0 {
		return 0, nil, io.EOF
	}
	return c.d.pages()
}

// VerifyBackup reads backups as Restore does, and writes nothing. It returns the last of them, with
// the bytes of all.
func VerifyBackup(ctx context.Context, backups ...io.Reader) (*Backup, error) {
	c := &backupChain{ctx: ctx, backups: backups}
	bytes := int64(0)
	for {
		err := c.next()
		if err == io.EOF && c.d != nil {
			last := c.d.Backup
			last.Bytes = bytes
			return &last, nil
		}
		if err == nil {
			err = c.skip()
		}
		if err != nil {
			return nil, noBackups(err)
		}
		bytes += c.d.Bytes
	}
}

func noBackups(err error) error {
	if err == io.EOF {
		return fmt.Errorf("%w: there is none", ErrBackupBase)
	}
	return err
}

// Restore makes a store at path of a full backup and its increments. It reads back and verifies all
// of it before the file gets its name: see pager.Restorer for crashes. The store has the id of the
// one that was backed up, its clock mark and its expiries.
func Restore(ctx context.Context, path string, o Options, backups ...io.Reader) (err error) {
	o = o.withDefaults()
	c := &backupChain{ctx: ctx, backups: backups}
	if err := c.next(); err != nil {
		return noBackups(err)
	}
	if err := mustBeAbsent(path, o); err != nil {
		return err
	}
	to, err := pager.NewRestorer(pager.Options{
		FS: o.FS, Path: path, NoMap: o.NoMap, Cache: minCacheBytes, SmallGroups: o.SmallGroups,
		CheckPage: tree.CheckPage,
	}, c.d.PageSize)
	if err != nil {
		return noSpace(err)
	}
	defer func() { err = noSpace(errors.Join(err, to.Close())) }()
	end, read := uint64(2), uint64(0) // behind the meta pages
	for more := true; more; {
		first, b, err := c.pages()
		switch {
		case err == io.EOF:
			if err = c.next(); err == io.EOF {
				more, err = false, nil
			}
		case err == nil:
			err = to.Write(first, b)
			n := uint64(len(b) / c.d.PageSize)
			read, end = read+n, max(end, uint64(first)+n)
		}
		if err != nil {
			return err
		}
	}
	if end > sparseFrom && end/sparsest > read {
		return c.d.corrupt(c.d.off, "%d pages, the last of them page %d", read, end-1)
	}
	m := *c.d.meta
	m.Pages = min(m.Pages, end) // memory is needed for each page, and the header may lie
	m.Backups = c.taken[max(0, len(c.taken)-pager.MostBackups):]
	number := m.LogStart / uint64(m.SegmentSize)
	m.LogStart = uint64(wal.First(m.SegmentSize, max(number, 1)))
	m.LogDurable = m.LogStart
	used, err := verifyRestored(ctx, path, o, to, &m)
	if err != nil {
		return err
	}
	return to.Finish(m, used)
}

// Restore needs memory for each page of the file, also for those that are no part of a backup, and a
// stream may claim any. A file of more than sparseFrom pages, a set of which takes 128 MiB, has at most
// sparsest for each page in the backups.
const (
	sparseFrom = 1 << 30
	sparsest   = 1 << 12
)

// mustBeAbsent refuses a path with a store, or with the log of one: the next open would replay it.
func mustBeAbsent(path string, o Options) error {
	if _, err := o.FS.Stat(path); err == nil {
		return fs.ErrExist // kv.Restore names the path
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	found, err := wal.Files(o.FS, path)
	if err != nil {
		return err
	}
	if len(found) > 0 {
		return fmt.Errorf("%s, log of another store: %w", found[0], fs.ErrExist)
	}
	return nil
}

// verifyRestored verifies the restored pages from the roots down, and returns those in use.
func verifyRestored(
	ctx context.Context, path string, o Options, to *pager.Restorer, m *pager.Meta,
) (*pager.UsedSet, error) {
	pg, err := to.Open(m)
	if err != nil {
		return nil, err
	}
	s := newStore(path, o)
	s.pg = pg
	var bad error
	c := &checker{s: s, ctx: ctx, seen: pager.NewUsedSet(m.Pages), visit: func(p Problem) bool {
		bad = badfile.Page(path, p.Page, p.Offset, "tree %d: %s", p.Tree, p.Detail)
		return false
	}}
	err = mapfault.Guard(s.Fault, func() (err error) {
		if c.v, err = s.loadVersion(m); err == nil {
			c.table, c.View = s.table, pg.Reader.View(c.v.base, c.v.serial)
			c.run()
		}
		return err
	})
	if c.err != nil { // a read failed, or ctx ended
		bad = c.err
	}
	return c.seen, errors.Join(err, bad)
}
