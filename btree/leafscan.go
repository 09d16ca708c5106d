package btree

import "unsafe"

// A Span is what is left of a leaf behind a cursor's row, in one direction: rows for a loop that
// has no time for a call on the cursor each. The zero Span is empty.
type LeafScan struct {
	b            []byte
	slots        int  // offset of slot 0
	uniform      bool // see leaf
	i, end, step int  // the row under the span, the one behind the last, and the way from one to the next
	prefetch     leafPrefetch
	within       bool // see Within
}

// LeafScan is the span of the rows that Next, or if not forward Prev, would go to without leaving
// the leaf. It is good for as long as the cursor.
func (c *Cursor) LeafScan(forward bool) LeafScan {
	if c.positioned {
		c.startPrefetch(forward)
	}
	if !c.Valid() {
		return LeafScan{}
	}
	s := LeafScan{
		b:        c.b,
		slots:    offLeafHeads + 4*c.n,
		uniform:  uniform(c.b),
		i:        c.i,
		end:      -1,
		step:     -1,
		prefetch: c.prefetch,
	}
	if forward {
		s.end, s.step = c.n, 1
	}
	if s.within = c.room(forward) >= 0; !s.within {
		s.prefetch = leafPrefetch{} // The walk ends here: nothing more of the next leaf is asked for.
	}
	return s
}

// EndScan moves the cursor, which the span is of, to the row before the one under the span.
func (c *Cursor) EndScan(s LeafScan) { c.i, c.prefetch = s.i-s.step, s.prefetch }

// Within says that all rows ahead are within the cursor's bounds, as far as the separators tell: of
// the last leaf they do not.
func (s *LeafScan) Within() bool { return s.within }

// Next moves to the next row. After it has said false it must not be called again.
func (s *LeafScan) Next() bool {
	s.i += s.step
	s.prefetch.advance()
	return s.i != s.end
}

// Row is the row under the span. whole is false for a value in an overflow extent, which is not
// read.
func (s *LeafScan) Row() (key, value []byte, tag int64, whole bool) {
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
	if info&infoSize == 0 { // It may end where the page does, and no pointer may stand there.
		return key, s.b[:0:0], tag, true
	}
	return key, unsafe.Slice((*byte)(unsafe.Add(page, at)), info&infoSize), tag, true
}
