package txn

import (
	"context"
	"errors"
	"fmt"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/pager"
)

// Check reads every page of the newest committed state from the file and verifies structure,
// checksums, counts, and that each page is reachable once or free once. It calls visit for each
// problem until visit returns false. Checkpoints wait while it runs; readers do not, and writers
// only where they wait for a checkpoint. The caller must not hold a write transaction.
func (s *Store) Check(ctx context.Context, visit func(Problem) bool) {
	s.open.Add(1) // before isOpen: Close sees it, or isOpen sees Close
	defer s.open.Add(-1)
	if !s.isOpen() {
		visit(Problem{Kind: "closed", File: s.path, Offset: -1, Detail: "the store is closed"})
		return
	}
	c := &checker{s: s, ctx: ctx, visit: visit}
	if err := lock(ctx, s.checkpointer.mu); err != nil {
		c.report("incomplete", 0, err)
		return
	}
	defer func() { <-s.checkpointer.mu }()
	if err := c.begin(); err != nil {
		c.report("incomplete", 0, err)
		return
	}
	defer c.slot.release()
	c.run()
}

type checker struct {
	pager.View
	s     *Store
	ctx   context.Context
	visit func(Problem) bool
	stop  bool

	v     *version
	slot  *snapshotSlot
	table tree.Tree
	space []pager.Ref
	used  *pager.UsedSet // nil: no free map is compared
	seen  *pager.UsedSet
	tree  TreeID
	blind bool  // a page could not be read: the pages below it are unknown
	err   error // first error that is not damage
}

// begin captures one state and its used pages.
func (c *checker) begin() error {
	s := c.s
	if err := s.lockWriter(c.ctx); err != nil {
		return err
	}
	defer s.unlockWriter()
	used, err := s.pg.Alloc.Used()
	if err != nil {
		return err
	}
	c.used, c.seen = used, used.Empty()
	c.v, c.table, c.space = s.head, s.table, s.pg.Alloc.SpacePages()
	c.View = s.pg.Reader.View(c.v.base, c.v.serial)
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
	c.compareUsed()
	if err := contextErr(c.ctx); err != nil && !c.stop {
		c.report("incomplete", 0, err)
	}
}

// compareUsed compares the pages that were reached with the free map, unless it is to be made of
// them.
func (c *checker) compareUsed() {
	if c.used == nil {
		return
	}
	unknown := 0
	c.used.Diff(c.seen, func(id pager.Pgid, used bool) bool {
		p := Problem{
			Kind: "leak", File: c.s.path, Page: uint64(id), Offset: -1,
			Detail: "in use by the free map, reached by nothing",
		}
		switch {
		case !used:
			p.Kind, p.Detail = "free", "reached, but free by the free map"
		case c.blind:
			unknown++
			return true
		}
		return c.visitProblem(p)
	})
	if unknown > 0 {
		c.report("incomplete", 0, fmt.Errorf("%d pages in use are reached from no page that can be read: "+
			"they lie below damaged ones, or are lost", unknown))
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
		p := Problem{Kind: "tree", Tree: id, File: c.s.path, Page: uint64(ref.Pgid), Offset: -1,
			Detail: detail}
		c.visitProblem(p)
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

// mark marks pages as reached; a page reached twice is a problem.
func (c *checker) mark(ref pager.Ref, pages int) error {
	for i := range pages {
		if !c.seen.Add(ref.Pgid + pager.Pgid(i)) {
			c.visitProblem(Problem{
				Kind: "twice", Tree: c.tree, File: c.s.path, Page: uint64(ref.Pgid) + uint64(i), Offset: -1,
				Detail: "reached twice, or past the end of the file",
			})
			return tree.ErrSkip
		}
	}
	return nil
}

// Page and Extent read every page from the file, even if it was verified before.
func (c *checker) Page(ref pager.Ref) ([]byte, error) {
	b, err := c.s.pg.Reader.ReadVerified(ref, c.v.base, nil)
	if err != nil {
		c.blind = true
		return nil, err
	}
	if b == nil {
		return c.View.Page(ref)
	}
	return b, nil
}

func (c *checker) Leaf(ref pager.Ref) (b, changes []byte, err error) {
	b, err = c.Page(ref)
	return b, nil, err
}

// Extent verifies the value, and returns no bytes: a value may be larger than the memory for it.
func (c *checker) Extent(ref pager.Ref, size int) ([]byte, error) {
	return nil, c.s.pg.Reader.VerifyExtent(ref, c.v.base, size)
}

// Peek gives no hints: a check reads the file.
func (c *checker) Peek(pager.Ref, int) []byte { return nil }

func (c *checker) report(kind string, id TreeID, err error) {
	p := Problem{Kind: kind, Tree: id, File: c.s.path, Offset: -1, Detail: err.Error()}
	var bad *badfile.Error
	if errors.As(err, &bad) {
		p.Page, p.Offset, p.Detail = bad.Pgid, bad.Off, bad.Detail
	} else if c.err == nil {
		c.err = err
	}
	c.visitProblem(p)
}

func (c *checker) visitProblem(p Problem) bool {
	if !c.stop && !c.visit(p) {
		c.stop = true
	}
	return !c.stop
}
