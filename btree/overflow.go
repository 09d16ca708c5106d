package btree

import "github.com/ebbkv/ebb/pager"

// Rows with a value in an overflow extent. The pager defines the layout of extents.

// PutExtent is Put of a value of size bytes that is already in an extent.
func PutExtent(w Writer, t *Tree, key []byte, ref pager.Ref, size int, tag int64) (was Info, err error) {
	if err := t.checkDepth(); err != nil {
		return Info{}, err
	}
	p := insertOp{pageEditor: pageEditor{w: w}, rightmost: true}
	p.cell.set(key, nil, tag)
	p.cell.ref = ref
	p.cell.info |= infoOverflow | uint32(size)
	err = p.put(t)
	p.releaseScratch()
	return p.was, err
}

func (e *pageEditor) freeExtent(b []byte, s cellPos) error {
	info := infoAt(b, s)
	if info&infoOverflow == 0 {
		return nil
	}
	return e.w.FreeExtent(overflowAt(b, s), int(info&infoSize))
}
