package txn

import (
	"context"
	"errors"
	"fmt"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/pager"
)

// Check reads every page of the newest committed state from the file and proves structure,
// checksums, counts, and that each page is reachable once or free once. It calls visit for each
// problem until that returns false. Checkpoints wait while it runs; readers do not, and writers
// only where they wait for a checkpoint. It must not be called by the holder of a write
// transaction.
func (s *Store) Check(ctx context.Context, visit func(Problem) bool) {
	s.open.Add(1) // first: a Close that does not see it is seen below
	defer s.open.Add(-1)
	if !s.isOpen() {
		visit(Problem{Kind: "closed", File: s.path, Offset: -1, Detail: "the store is closed"})
		return
	}
	c := &checker{s: s, ctx: ctx, visit: visit}
	if err := lock(ctx, s.maintenanceMu); err != nil {
		c.report("incomplete", 0, err)
		return
	}
	defer func() { <-s.maintenanceMu }()
	if err := c.begin(); err != nil {
		c.report("incomplete", 0, err)
		return
	}
	defer c.slot.release()
	c.run()
}

type checker struct {
	s     *Store
	ctx   context.Context
	visit func(Problem) bool
	stop  bool

	v     *version
	slot  *snapshotSlot
	table tree.Tree
	space []pager.Ref
	used  *pager.UsedSet
	seen  *pager.UsedSet
	tree  TreeID
	blind bool // some page could not be read: nobody knows what lies below it
}

// begin takes note of one state and its page accounts.
func (c *checker) begin() error {
	s := c.s
	if err := s.lockWriter(c.ctx); err != nil {
		return err
	}
	defer s.unlockWriter()
	used, err := s.pg.Used()
	if err != nil {
		return err
	}
	c.used, c.seen = used, used.Empty()
	c.v, c.table, c.space = s.head, s.table, s.pg.SpacePages()
	c.slot = s.readers.pin(c.v, s.now())
	return nil
}

func (c *checker) run() {
	c.mark(pager.Ref{Pgid: 0}, 1)
	c.mark(pager.Ref{Pgid: 1}, 1)
	for _, ref := range c.space {
		if err := c.s.pg.VerifySpace(ref); err != nil {
			c.report("page", 0, err)
		}
		c.mark(ref, 1)
	}
	c.checkTree(0, c.table)
	c.v.trees.from(0, func(id TreeID, t tree.Tree) bool {
		c.checkTree(id, t)
		return !c.stop
	})
	if c.stop {
		return
	}
	unknown := 0
	c.used.Diff(c.seen, func(id pager.Pgid, used bool) bool {
		p := Problem{
			Kind:   "leak",
			File:   c.s.path,
			Page:   uint64(id),
			Offset: -1,
			Detail: "in use by the free map, reached by nothing",
		}
		switch {
		case !used:
			p.Kind, p.Detail = "free", "reached, but free by the free map"
		case c.blind:
			unknown++
			return true
		}
		return c.tell(p)
	})
	if unknown > 0 {
		c.report("incomplete", 0, fmt.Errorf("%d pages in use are reached from no page that can be read: "+
			"they lie below damaged ones, or are lost", unknown))
	}
	if err := contextErr(c.ctx); err != nil && !c.stop {
		c.report("incomplete", 0, err)
	}
}

func (c *checker) checkTree(id TreeID, t tree.Tree) {
	if c.stop {
		return
	}
	c.tree = id
	err := tree.Check(c, t, func(ref pager.Ref, pages int) error {
		if err := contextErr(c.ctx); err != nil {
			return err
		}
		return c.mark(ref, pages)
	}, func(ref pager.Ref, detail string) {
		c.tell(Problem{Kind: "tree", Tree: id, File: c.s.path, Page: uint64(ref.Pgid), Offset: -1, Detail: detail})
	})
	if err == nil {
		return
	}
	if c.ctx != nil && errors.Is(err, c.ctx.Err()) {
		c.report("incomplete", id, err)
		c.stop = true
		return
	}
	c.report("tree", id, err)
}

// mark notes that pages are reached; reaching one twice is a problem.
func (c *checker) mark(ref pager.Ref, pages int) error {
	for i := range pages {
		if !c.seen.Add(ref.Pgid + pager.Pgid(i)) {
			c.tell(Problem{Kind: "twice", Tree: c.tree, File: c.s.path, Page: uint64(ref.Pgid) + uint64(i), Offset: -1,
				Detail: "reached twice, or past the end of the file"})
			return tree.ErrSkip
		}
	}
	return nil
}

// PageSize, Page and Extent read every page from the file, whatever was verified before.
func (c *checker) PageSize() int { return c.s.pg.PageSize() }

func (c *checker) Page(ref pager.Ref) ([]byte, error) {
	if err := c.s.pg.Verify(ref, c.v.base, -1); err != nil {
		c.blind = true
		return nil, err
	}
	return c.s.pg.Snapshot(ref, c.v.base, c.v.serial)
}

func (c *checker) Leaf(ref pager.Ref) (b, changes []byte, err error) {
	b, err = c.Page(ref)
	return b, nil, err
}

func (c *checker) Extent(ref pager.Ref, size int) ([]byte, error) {
	if err := c.s.pg.Verify(ref, c.v.base, size); err != nil {
		return nil, err
	}
	return c.s.pg.Extent(ref, size)
}

// Peek gives no hints: a check reads the file.
func (c *checker) Peek(pager.Ref, int) []byte { return nil }

// ReadAhead has pages read that are going to be verified.
func (c *checker) ReadAhead(refs []pager.Ref) { c.s.pg.ReadAhead(refs, c.v.base) }

// ReadsAhead reports whether that does anything.
func (c *checker) ReadsAhead() bool { return c.s.pg.ReadsAhead() }

func (c *checker) report(kind string, id TreeID, err error) {
	p := Problem{Kind: kind, Tree: id, File: c.s.path, Offset: -1, Detail: err.Error()}
	var bad *badfile.Error
	if errors.As(err, &bad) {
		p.Page, p.Offset, p.Detail = bad.Pgid, bad.Off, bad.Detail
	}
	c.tell(p)
}

func (c *checker) tell(p Problem) bool {
	if !c.stop && !c.visit(p) {
		c.stop = true
	}
	return !c.stop
}

// String says what and where.
func (p Problem) String() string {
	return fmt.Sprintf("%s: %s: tree %d, page %d: %s", p.File, p.Kind, p.Tree, p.Page, p.Detail)
}
