package btree

// SetTag changes the tag of key, 0 for none, and keeps its value: an overflow extent stays where it
// is. It returns the Info of the old row.
func SetTag(w Writer, t *Tree, key []byte, tag int64) (was Info, err error) {
	b, s, err := find(w, *t, key)
	if err != nil || !s.found() {
		return Info{}, err
	}
	if was = infoAtCell(b, s); was.Tag == tag {
		return was, nil
	}
	p := insertOp{pageEditor: pageEditor{w: w}, rightmost: true, retag: true}
	defer p.releaseScratch()
	p.cell = cell{key: key, tag: tag, info: infoAt(b, s) &^ infoTag}
	if tag != 0 {
		p.cell.info |= infoTag
	}
	if p.cell.info&infoOverflow != 0 {
		p.cell.ref = overflowAt(b, s)
	} else if was.Tag == 0 || tag == 0 { // else the cell keeps its size and is changed in place
		sc := p.scratchPages(w.PageSize())
		sc.val = append(sc.val[:0], valueAt(b, s)...) // the page may change before the cell is written
		p.cell.val = sc.val
	}
	if p.putInPlace(t) {
		return was, nil
	}
	return was, p.put(t)
}
