package btree

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/pager"
)

// ErrSkip may be returned by the visit function of Check, to skip the subtree below that page.
var ErrSkip = errors.New("btree: skip the pages below")

// Check verifies the whole tree: each page by itself, its kind and level, the order of keys within
// pages and against the separators above them, the rows and the overflow bit of each branch entry,
// that no page is older than a page below it, and that each extent can be read.
//
// Check calls visit for each page and each extent (of so many pages) before it reads them. A visit
// function that keeps a set finds pages that are reachable twice; it then returns ErrSkip. Any
// other error ends the walk. Check calls report for each finding, with its page, and continues
// where it can. Check returns an error only if visit or an I/O operation fails: it reports damage.
func Check(
	r Reader,
	t Tree,
	visit func(ref pager.Ref, pages int) error,
	report func(ref pager.Ref, detail string),
) error {
	c := walker{r: r, visit: visit, report: report}
	if (t.Depth == 0) != t.Root.IsZero() || t.Depth > maxDepth {
		report(t.Root, fmt.Sprintf("root %v of a tree of depth %d", t.Root, t.Depth))
		return nil
	}
	var rows uint64
	known := true
	if t.Depth > 0 {
		var err error
		if rows, _, known, err = c.check(t.Root, t.Depth-1, nil, nil); err != nil {
			return err
		}
	}
	if known && rows != t.Rows {
		report(t.Root, fmt.Sprintf("tree counts %d rows, it has %d", t.Rows, rows))
	}
	return nil
}

type walker struct {
	r      Reader
	visit  func(pager.Ref, int) error
	report func(pager.Ref, string)
}

func (c *walker) found(ref pager.Ref, format string, args ...any) {
	c.report(ref, fmt.Sprintf(format, args...))
}

// damaged reports err if it is damage, and returns it otherwise.
func (c *walker) damaged(ref pager.Ref, err error) error {
	var bad *badfile.Error
	if errors.As(err, &bad) {
		c.report(ref, bad.Detail)
		return nil
	}
	return err
}

// check verifies the subtree at ref, whose keys lie in [lo, hi); nil is no bound. known is false if
// damage or ErrSkip hides the number of rows below.
func (c *walker) check(
	ref pager.Ref, level uint8, lo, hi []byte,
) (rows uint64, overflow, known bool, err error) {
	if err := c.visit(ref, 1); err != nil {
		if errors.Is(err, ErrSkip) {
			err = nil
		}
		return 0, false, false, err
	}
	b, n, err := pageAt(c.r, ref, level)
	if err == nil {
		err = CheckPage(b, c.r.PageSize())
	}
	if err != nil {
		return 0, false, false, c.damaged(ref, err)
	}
	if level == 0 {
		overflow, err = c.leaf(ref, b, n, lo, hi)
		return uint64(n), overflow, true, err
	}
	if n > 1 {
		if lo != nil && bytes.Compare(sep(b, n, 1), lo) <= 0 {
			c.found(ref, "separator 1 is not above the one on the left in the page above")
		}
		if hi != nil && bytes.Compare(sep(b, n, n-1), hi) >= 0 {
			c.found(ref, "separator %d is not below the next one in the page above", n-1)
		}
	}
	known = true
	for i := range n {
		readChildren(c.r, b, n, i, 0)
		cref, r := childRef(b, n, i), childRows(b, n, i)
		if cref.Epoch > ref.Epoch {
			c.found(ref, "child %d, page %d, is of epoch %d, newer than its parent's %d",
				i, cref.Pgid, cref.Epoch, ref.Epoch)
		}
		clo, chi := lo, hi
		if i > 0 {
			clo = sep(b, n, i)
		}
		if i+1 < n {
			chi = sep(b, n, i+1)
		}
		crows, cover, cknown, err := c.check(cref, level-1, clo, chi)
		if err != nil {
			return 0, false, false, err
		}
		if cknown && crows != r&^rowsOverflow {
			c.found(ref, "child %d, page %d, counts %d rows, it has %d", i, cref.Pgid, r&^rowsOverflow, crows)
		}
		if cover && r&rowsOverflow == 0 {
			c.found(ref, "child %d, page %d, has overflow values, but no overflow bit", i, cref.Pgid)
		}
		rows += crows
		overflow = overflow || cover
		known = known && cknown
	}
	return rows, overflow, known, nil
}

func (c *walker) leaf(ref pager.Ref, b []byte, n int, lo, hi []byte) (overflow bool, err error) {
	if lo != nil && bytes.Compare(leafKey(b, n, 0), lo) < 0 {
		c.found(ref, "key 0 is below the separator on the left in the page above")
	}
	if hi != nil && bytes.Compare(leafKey(b, n, n-1), hi) >= 0 {
		c.found(ref, "key %d is not below the next separator in the page above", n-1)
	}
	err = overflowCells(b, n, func(i int, x pager.Ref, size int) error {
		overflow = true
		if x.Epoch > ref.Epoch {
			c.found(ref, "the value of cell %d, page %d, is of epoch %d, newer than its leaf's %d",
				i, x.Pgid, x.Epoch, ref.Epoch)
		}
		if err := c.visit(x, int(pager.ExtentPages(size, len(b)))); errors.Is(err, ErrSkip) {
			return nil
		} else if err != nil {
			return err
		}
		_, err := c.r.Extent(x, size)
		return c.damaged(x, err)
	})
	return overflow, err
}
