package btree

// A leafSize adds up the space that cells take in a leaf of their own. The zero value has no cells.
type leafSize struct {
	n      int // cells
	bodies int // bytes of the cells without headers
	klen   int // of the common header; 0: the headers differ
	info   uint32
}

// add adds a cell if it fits into a leaf of pageSize with the others.
func (s *leafSize) add(klen int, info uint32, pageSize int) bool {
	if s.klen > 0 && s.klen == klen && s.info == info { // as most are
		bodies := s.bodies + bodySize(s.klen, s.info)
		if bodies+leafEntry*(s.n+1) > pageSize-offLeafHeads {
			return false
		}
		s.n, s.bodies = s.n+1, bodies
		return true
	}
	with := *s
	with.n++
	with.bodies += bodySize(klen, info)
	switch {
	case s.n == 0 && isShape(klen, info):
		with.klen, with.info = klen, info
	case s.klen != klen || s.info != info:
		with.klen, with.info = 0, 0
	}
	if with.bytes()+leafEntry*with.n > pageSize-offLeafHeads {
		return false
	}
	*s = with
	return true
}

// uniform reports whether a leaf of these cells is uniform.
func (s *leafSize) uniform() bool { return s.klen > 0 }

// bytes is the size in bytes of the cells themselves.
func (s *leafSize) bytes() int {
	if s.uniform() {
		return s.bodies
	}
	return s.bodies + cellHeader*s.n
}

// shape makes b an empty leaf that these cells match.
func (s *leafSize) shape(b []byte) { setShape(b, s.klen, s.info) }
