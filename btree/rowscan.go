package btree

import "unsafe"

// A rowScan is the part of the current leaf that ScanRow yields next.
type rowScan struct {
	slots     int    // offset of slot 0
	klen      int    // header of all cells of a uniform leaf, else klen is 0
	info      uint32 // see klen
	last      bool   // no further leaf has rows within bounds
	end, step int    // where the rows end, and 1 or -1
	minTag    int64  // see BeginScan
}

// BeginScan begins a scan from the cursor's row on: ScanRow yields the rows within bounds that Next,
// or if not forward Prev, would reach. It stops before a row with a tag below minTag. The scan ends
// with the next other move. It returns false without a row.
func (c *Cursor) BeginScan(forward bool, minTag int64) bool {
	if c.positioned {
		c.startPrefetch(forward)
	}
	if !c.Valid() {
		return false
	}
	c.scan.minTag, c.scan.step = minTag, direction(forward)
	c.scanLeaf(forward)
	return true
}

// scanLeaf sets the scan to the rows of the current leaf from behind c.i on.
func (c *Cursor) scanLeaf(forward bool) {
	s := &c.scan
	s.slots = offLeafHeads + 4*c.n
	if s.klen = ld16(c.b, offShape); s.klen > 0 {
		s.info = ld32(c.b, offShape+2)
	}
	s.end = -1
	if forward {
		s.end = c.n
	}
	edge := c.compareEdge(forward)
	s.last = edge <= 0
	if edge >= 0 {
		return
	}
	c.prefetch = leafPrefetch{} // The walk ends in this leaf, or with it.
	if forward {
		i, _, _ := leafSearch(c.b, c.n, c.hi)
		s.end = max(i, c.i+1)
	} else {
		i, _, _ := leafSearch(c.b, c.n, c.lo)
		s.end = min(i, c.i) - 1
	}
}

// scanNextLeaf moves before the first row of the next leaf, and says whether that is within bounds.
func (c *Cursor) scanNextLeaf() bool {
	s := &c.scan
	forward := s.step > 0
	if s.last || !c.leaveLeaf(forward) {
		return false
	}
	c.i -= s.step
	c.scanLeaf(forward)
	return c.i+s.step != s.end
}

// ScanRow moves to the next row of the scan and returns it. ok is false, and the next Next, or if not
// forward Prev, is the move on, before a row out of bounds, with a tag below the least or with a value
// in an overflow extent, and if the next leaf cannot be read.
func (c *Cursor) ScanRow() (key, value []byte, ok bool) {
	s := &c.scan
	i := c.i + s.step
	if i == s.end {
		if !c.scanNextLeaf() {
			return nil, nil, false
		}
		i = c.i + s.step
	}
	at := ld16(c.b, s.slots+2*i)
	n, info := s.klen, s.info
	if n == 0 {
		n, info = ld16(c.b, at), ld32(c.b, at+2)
		at += cellHeader
	}
	page := unsafe.Pointer(unsafe.SliceData(c.b))
	key = unsafe.Slice((*byte)(unsafe.Add(page, at)), n)
	at += n
	if info > infoSize {
		if info&infoOverflow != 0 || int64(ld64(c.b, at)) < s.minTag {
			return nil, nil, false
		}
		at += tagSize
	}
	c.i = i
	c.prefetch.advance()
	if info&infoSize == 0 { // A pointer must not point to the end of the page.
		return key, c.b[:0:0], true
	}
	return key, unsafe.Slice((*byte)(unsafe.Add(page, at)), info&infoSize), true
}
