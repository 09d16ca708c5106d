package txn

import "slices"

// deferredFrees is a list of entries from the oldest to the newest, in pieces. A single slice would
// be copied as it grows into memory that was never touched: tens of megabytes in large loads, under
// the writer lock. The zero value is empty.
type deferredFrees struct {
	pieces [][]deferredFree // each with at least one entry
	gone   int              // entries of the first piece that were shifted out
	n      int
	spare  [][]deferredFree // pieces for reuse
}

const (
	leastPiece = 64 // entries in a piece; small at first, for stores that free little
	mostPiece  = 1024
	mostSpare  = 64 // pieces
)

func (q *deferredFrees) len() int { return q.n }

func (q *deferredFrees) push(f deferredFree) {
	last := len(q.pieces) - 1
	if last < 0 || len(q.pieces[last]) == cap(q.pieces[last]) {
		q.pieces = append(q.pieces, q.piece())
		last++
	}
	q.pieces[last] = append(q.pieces[last], f)
	q.n++
}

func (q *deferredFrees) piece() []deferredFree {
	if last := len(q.spare) - 1; last >= 0 {
		p := q.spare[last]
		q.spare = q.spare[:last]
		return p
	}
	return make([]deferredFree, 0, min(max(q.n, leastPiece), mostPiece))
}

// oldest returns the entry that shift will remove, valid until the next change; nil: the list is
// empty.
func (q *deferredFrees) oldest() *deferredFree {
	if q.n == 0 {
		return nil
	}
	return &q.pieces[0][q.gone]
}

// shift removes the oldest entry. The list is not empty.
func (q *deferredFrees) shift() deferredFree {
	first := q.pieces[0]
	f := first[q.gone]
	q.gone++
	q.n--
	if q.gone == len(first) {
		q.gone = 0
		if q.pieces = slices.Delete(q.pieces, 0, 1); len(q.spare) < mostSpare {
			q.spare = append(q.spare, first[:0])
		}
	}
	return f
}
