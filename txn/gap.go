package txn

import (
	"errors"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/mapfault"
	"github.com/ebbkv/ebb/pager"
)

// Gap is tree.Gap: a subtree that a cursor could not read.
type Gap = tree.Gap

// OverGaps lets an unplaced cursor of a read transaction continue after a page that cannot be read,
// and keeps the transaction alive: a move to such a page finds no row, Gap describes the lost
// subtree, and Skip continues behind it. In a write transaction it has no effect: changes must not
// depend on half of the stored rows.
func (c *Cursor) OverGaps() {
	if c.tx.w == nil {
		c.overGaps = true
		c.reset()
	}
}

// Gap describes the subtree at which the last move ended; ok is false if it did not end at a gap.
func (c *Cursor) Gap() (g Gap, ok bool) {
	if !c.overGaps || c.err != nil {
		return Gap{}, false
	}
	g, ok = c.c.Gap()
	return g, ok && skippable(g.Err)
}

// Skip moves to the first row behind the gap, or to the last one before it, and says whether there
// is one.
func (c *Cursor) Skip(forward bool) bool { return c.begin() && c.end(c.c.Skip(forward)) }

// ReadValue is Value for a cursor that goes over gaps: if the value cannot be read the call fails,
// and the cursor stays on the row. lost says that the cause is one that makes a gap.
func (c *Cursor) ReadValue() (value []byte, lost bool, err error) {
	if !c.Valid() {
		return nil, false, c.err
	}
	value, err = c.c.ReadValue()
	switch {
	case err == nil:
		return value, false, nil
	case skippable(err):
		return nil, true, err
	}
	c.err, c.on = c.tx.recordErr(err), false
	return nil, false, err
}

// skippable says whether err concerns the bytes at one place of the file: damage, or a failed read.
func skippable(err error) bool {
	return errors.Is(err, badfile.ErrCorrupt) || errors.Is(err, pager.ErrRead)
}

// faultReader is a read transaction whose reads convert a fault of the map to an error at once: the
// cursor needs the page of the fault.
type faultReader struct{ *Tx }

func (r faultReader) Page(ref pager.Ref) (b []byte, err error) {
	err = mapfault.Guard(r.s.Fault, func() error {
		b, err = r.Tx.Page(ref)
		return err
	})
	return b, err
}

func (r faultReader) Extent(ref pager.Ref, size int) (b []byte, err error) {
	err = mapfault.Guard(r.s.Fault, func() error {
		b, err = r.Tx.Extent(ref, size)
		return err
	})
	return b, err
}
