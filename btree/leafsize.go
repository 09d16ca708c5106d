package btree

// A sizer adds up what cells, one after the other, take of a leaf of their own. The zero sizer has
// none.
type leafSize struct {
	n      int // cells
	bodies int // bytes of these without headers
	klen   int // of the header that all have; 0: they are not alike
	info   uint32
}

// add adds a cell if it has room in a leaf of pageSize with the others.
func (s *leafSize) add(c *cell, pageSize int) bool {
	if s.klen > 0 && s.klen == len(c.key) && s.info == c.info { // as most are
		bodies := s.bodies + bodySize(s.klen, s.info)
		if bodies+leafEntry*(s.n+1) > pageSize-offLeafHeads {
			return false
		}
		s.n, s.bodies = s.n+1, bodies
		return true
	}
	with := *s
	with.n++
	with.bodies += bodySize(len(c.key), c.info)
	switch {
	case s.n == 0 && isShape(len(c.key), c.info):
		with.klen, with.info = len(c.key), c.info
	case s.klen != len(c.key) || s.info != c.info:
		with.klen, with.info = 0, 0
	}
	if with.bytes()+leafEntry*with.n > pageSize-offLeafHeads {
		return false
	}
	*s = with
	return true
}

// uniform says that a leaf of these cells is uniform.
func (s *leafSize) uniform() bool { return s.klen > 0 }

// bytes is what the cells themselves take.
func (s *leafSize) bytes() int {
	if s.uniform() {
		return s.bodies
	}
	return s.bodies + cellHeader*s.n
}

// shape makes b the empty leaf that these cells match.
func (s *leafSize) shape(b []byte) { setShape(b, s.klen, s.info) }
