package btree

import "unsafe"

// A LeafScan is a scan of the rest of a leaf from a cursor's row on, in one direction, for loops
// that need rows without a cursor call for each. The zero LeafScan is empty.
type LeafScan struct {
	b            []byte
	slots        int  // offset of slot 0
	uniform      bool // see leaf
	i, end, step int  // the current row, the end, and 1 or -1
	prefetch     leafPrefetch
}

// LeafScan returns a scan of the rows within bounds that Next, or if not forward Prev, would reach
// without leaving the leaf. It is valid as long as the cursor.
func (c *Cursor) LeafScan(forward bool) LeafScan {
	if c.positioned {
		c.startPrefetch(forward)
	}
	if !c.Valid() {
		return LeafScan{}
	}
	s := LeafScan{
		b: c.b, slots: offLeafHeads + 4*c.n, uniform: uniform(c.b),
		i: c.i, end: -1, step: -1, prefetch: c.prefetch,
	}
	if forward {
		s.end, s.step = c.n, 1
	}
	if c.compareEdge(forward) < 0 { // The walk ends in this leaf, or with it.
		s.prefetch = leafPrefetch{}
		if forward {
			i, _, _ := leafSearch(c.b, c.n, c.hi)
			s.end = max(i, c.i+1)
		} else {
			i, _, _ := leafSearch(c.b, c.n, c.lo)
			s.end = min(i, c.i) - 1
		}
	}
	return s
}

// EndScan moves the cursor of the scan to the row before the scan's current row.
func (c *Cursor) EndScan(s LeafScan) { c.i, c.prefetch = s.i-s.step, s.prefetch }

// Next moves to the next row. After it has returned false it must not be called again.
func (s *LeafScan) Next() bool {
	s.i += s.step
	return s.i != s.end
}

// Row returns the current row, and is called once for each. whole is false for a value in an overflow
// extent, which Row does not read.
func (s *LeafScan) Row() (key, value []byte, tag int64, whole bool) {
	s.prefetch.advance()
	header := ld16(s.b, s.slots+2*s.i)
	at := header + cellHeader
	if s.uniform {
		header, at = offShape, header
	}
	n, info := ld16(s.b, header), ld32(s.b, header+2)
	page := unsafe.Pointer(unsafe.SliceData(s.b))
	key = unsafe.Slice((*byte)(unsafe.Add(page, at)), n)
	at += n
	if info > infoSize {
		if info&infoOverflow != 0 {
			return nil, nil, 0, false
		}
		tag = int64(ld64(s.b, at))
		at += tagSize
	}
	if info&infoSize == 0 { // A pointer must not point to the end of the page.
		return key, s.b[:0:0], tag, true
	}
	return key, unsafe.Slice((*byte)(unsafe.Add(page, at)), info&infoSize), tag, true
}
