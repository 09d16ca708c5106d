package pager

import "unsafe"

// An undoBuffer holds byte strings of at most a page each, one after the other in chunks that never
// move: first an own buffer, then frames of the arena, which are soon pages again. Its growth
// copies nothing and does not burden the garbage collector.
type undoBuffer struct {
	chunks [][]byte // len is the used part of each; chunk 0 is the own buffer
	last   int      // index of the chunk that add appends to
	bytes  int      // size of all byte strings
}

// bufferOffset is a position in an undoBuffer: the chunk, above 32 bits of offset in it.
type bufferOffset int64

// undoBufferBytes is the size of the own buffer, which empty keeps: enough for transactions of some
// hundred rows.
const undoBufferBytes = 64 << 10

// reserve ensures space for byte strings that fit into this number of pages, in any arrangement.
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

// add copies b. reserve has ensured space for it.
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

func (s *undoBuffer) bytesAt(at bufferOffset, n uint32) []byte {
	off := uint32(at)
	return s.chunks[at>>32][off : off+n]
}

// empty removes all byte strings and frees the frames.
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
