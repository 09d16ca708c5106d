package pager

import "unsafe"

// A stash holds pieces of bytes, of a page at most each, one behind the other in chunks that never move: first a buffer of
// its own, then frames of the arena, which are pages again a moment later. To grow copies nothing and asks the collector
// for nothing.
type stash struct {
	chunks [][]byte // the length of each is what is used of it; chunk 0 is the buffer
	last   int      // the chunk that pieces are added to
	bytes  int      // of all pieces
}

// place is where in a stash a piece begins: its chunk, above 32 bits of offset there.
type place int64

// stashBytes is the size of the buffer, which stays when the stash is emptied: enough for transactions of some hundred rows.
const stashBytes = 64 << 10

// reserve makes room for pieces that need no more than this many pages, however they lie.
func (s *stash) reserve(a *arena, pages int) error {
	if s.chunks == nil {
		s.chunks = [][]byte{make([]byte, 0, max(stashBytes, pages*a.pageSize))}
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
func (s *stash) add(b []byte) place {
	c := &s.chunks[s.last]
	if cap(*c)-len(*c) < len(b) {
		s.last++
		c = &s.chunks[s.last]
	}
	at := place(s.last)<<32 | place(len(*c))
	*c = append(*c, b...)
	s.bytes += len(b)
	return at
}

// piece is the n bytes at a place.
func (s *stash) piece(at place, n uint32) []byte {
	off := uint32(at)
	return s.chunks[at>>32][off : off+n]
}

// empty forgets all pieces and gives the frames back.
func (s *stash) empty(a *arena) {
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
