package pager

import "unsafe"

// A stash holds pieces of bytes, of a page at most each, one behind the other in chunks that never
// move: first a buffer of its own, then frames of the arena, which are pages again a moment later.
// To grow copies nothing and asks the collector for nothing.
type undoBuffer struct {
	chunks [][]byte // the length of each is what is used of it; chunk 0 is the buffer
	last   int      // the chunk that pieces are added to
	bytes  int      // of all pieces
}

// bufferOffset is where in a stash a piece begins: its chunk, above 32 bits of offset there.
type bufferOffset int64

// undoBufferBytes is the size of the buffer, which stays when the stash is emptied: enough for
// transactions of some hundred rows.
const undoBufferBytes = 64 << 10

// reserve makes room for pieces that need no more than this many pages, however they lie.
func (s *undoBuffer) reserve(a *frameArena, pages int) error {
	if s.chunks == nil {
		s.chunks = [][]byte{make([]byte, 0, max(undoBufferBytes, pages*a.pageSize))}
	}
	if c := s.chunks[s.last]; cap(c)-len(c) >= pages*a.pageSize {
		return nil
	}
	for len(s.chunks)-1-s.last < pages {
		f, err := a.alloc()
		if err != nil {
			return err
		}
		s.chunks = append(s.chunks, unsafe.Slice((*byte)(f), a.pageSize)[:0])
	}
	return nil
}

// add takes a copy of b. There is room for it.
func (s *undoBuffer) add(b []byte) bufferOffset {
	c := &s.chunks[s.last]
	if cap(*c)-len(*c) < len(b) {
		s.last++
		c = &s.chunks[s.last]
	}
	at := bufferOffset(s.last)<<32 | bufferOffset(len(*c))
	*c = append(*c, b...)
	s.bytes += len(b)
	return at
}

// bytesAt is the n bytes at a place.
func (s *undoBuffer) bytesAt(at bufferOffset, n uint32) []byte {
	off := uint32(at)
	return s.chunks[at>>32][off : off+n]
}

// empty forgets all pieces and gives the frames back.
func (s *undoBuffer) empty(a *frameArena) {
	if s.chunks == nil {
		return
	}
	for _, c := range s.chunks[1:] {
		a.release(unsafe.Pointer(unsafe.SliceData(c)))
	}
	clear(s.chunks[1:])
	s.chunks = s.chunks[:1]
	s.chunks[0] = s.chunks[0][:0]
	s.last, s.bytes = 0, 0
}
