package btree

import (
	"bytes"
	"unsafe"
)

// A Span is what is left of a leaf behind a cursor's row, in one direction: rows for a loop that has no time for a call
// on the cursor each. The zero Span is empty.
type Span struct {
	b            []byte
	slots        int // offset of slot 0
	i, end, step int // the row under the span, the one behind the last, and the way from one to the next
	look         lookahead
}

// Ahead is the span of the rows that Next, or if not forward Prev, would go to without leaving the leaf. It is good
// for as long as the cursor.
func (c *Cursor) Ahead(forward bool) Span {
	if c.sought {
		c.setOut(forward)
	}
	switch {
	case !c.Valid():
		return Span{}
	case forward:
		return Span{c.b, offHeads + 4*c.n, c.i, c.n, 1, c.look}
	}
	return Span{c.b, offHeads + 4*c.n, c.i, -1, -1, c.look}
}

// Reach moves the cursor, which the span is of, to the row before the one under the span.
func (c *Cursor) Reach(s Span) { c.i, c.look = s.i-s.step, s.look }

// Last says that the loop will not go on in the next leaf: nothing more of it is asked for.
func (s *Span) Last() { s.look = lookahead{} }

// Next moves to the next row. After it has said false it must not be called again.
func (s *Span) Next() bool {
	s.i += s.step
	s.look.passed()
	return s.i != s.end
}

// Row is the row under the span. whole is false for a value in an overflow extent, which is not read.
func (s *Span) Row() (key, value []byte, tag int64, whole bool) {
	off := ld16(s.b, s.slots+2*s.i)
	n, info := ld16(s.b, off), ld32(s.b, off+2)
	page := unsafe.Pointer(unsafe.SliceData(s.b))
	at := off + cellHeader
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

// Below says that all rows ahead have keys below bound, nil being no bound. The span goes forward.
func (s *Span) Below(bound []byte) bool {
	return bound == nil || s.step <= 0 || bytes.Compare(keyAt(s.b, ld16(s.b, s.slots+2*(s.end-1))), bound) < 0
}

// From says that all rows ahead have keys of at least bound, nil being no bound. The span goes back.
func (s *Span) From(bound []byte) bool {
	return bound == nil || s.step >= 0 || bytes.Compare(keyAt(s.b, ld16(s.b, s.slots)), bound) >= 0
}
