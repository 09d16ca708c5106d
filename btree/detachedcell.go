package btree

// A loose cell is one on its way from page to page. It points to where it stood, or will stand no
// more.
type detachedCell struct {
	body []byte // key, tag and value
	info uint32
	klen uint16
}

// detach is that of the cell at s.
func detach(b []byte, s cellPos) detachedCell {
	return detachedCell{body: bodyAt(b, s), info: infoAt(b, s), klen: uint16(ld16(b, s.header))}
}

func (c *detachedCell) key() []byte { return c.body[:c.klen:c.klen] }

// appendHeaded appends the cell, with its header, to b.
func (c *detachedCell) appendHeaded(b []byte) []byte {
	n := len(b)
	b = append(b, make([]byte, cellHeader)...)
	putHeader(b[n:], int(c.klen), c.info)
	return append(b, c.body...)
}

// appendCells appends cells [i, j) of a leaf to cells. They point into b.
func appendCells(cells []detachedCell, b []byte, i, j int) []detachedCell {
	n := count(b)
	for ; i < j; i++ {
		cells = append(cells, detach(b, cellPosOf(b, n, i)))
	}
	return cells
}

// sameShape says that a leaf of these cells is uniform.
func sameShape(cells []detachedCell) bool {
	if len(cells) == 0 || !isShape(int(cells[0].klen), cells[0].info) {
		return false
	}
	for i := range cells {
		if cells[i].klen != cells[0].klen || cells[i].info != cells[0].info {
			return false
		}
	}
	return true
}

// bodyBytes is the size in bytes of all bodies.
func bodyBytes(cells []detachedCell) (size int) {
	for i := range cells {
		size += len(cells[i].body)
	}
	return size
}

// cellOverhead is what each of the cells takes of a leaf besides its body: no more than that if
// they stand in several leaves.
func cellOverhead(cells []detachedCell) int {
	if sameShape(cells) {
		return leafEntry
	}
	return leafEntry + cellHeader
}

// cellsSize is how much of the payload of a leaf the cells take.
func cellsSize(cells []detachedCell) int { return bodyBytes(cells) + len(cells)*cellOverhead(cells) }

// cellsSummary is summary of a leaf of these cells.
func cellsSummary(cells []detachedCell) uint64 {
	for i := range cells {
		if cells[i].info&infoOverflow != 0 {
			return uint64(len(cells)) | rowsOverflow
		}
	}
	return uint64(len(cells))
}

// cutCells returns how many of the cells go to the left of two pages, so that both hold about as
// many bytes. At least one goes to each. 0: they do not fit into two pages, which happens only to
// cells of two pages and one more.
func cutCells(cells []detachedCell, room int) int {
	total, per := cellsSize(cells), cellOverhead(cells)
	m, left := 0, 0
	for m < len(cells) && 2*left < total {
		left += per + len(cells[m].body)
		m++
	}
	// left is now at or above half, and before its last cell it was below.
	before := left - per - len(cells[m-1].body)
	fits := m < len(cells) && left <= room && total-left <= room
	if m > 1 && before <= room && total-before <= room && (!fits || total-2*before < 2*left-total) {
		return m - 1
	}
	if !fits {
		return 0
	}
	return m
}
