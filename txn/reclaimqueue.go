package txn

import (
	"iter"
	"slices"
)

// deferredFrees is a queue of freed runs, from the oldest to the newest, in pieces. A single slice
// would be copied as it grows into memory that was never touched: tens of megabytes in large loads,
// under the writer lock. The zero value is empty.
type deferredFrees struct {
	pieces [][]deferredFree // each with at least one run
	gone   int              // runs of the first piece that were shifted out
	n      int
	spare  [][]deferredFree // pieces for reuse
}

const (
	leastPiece = 64 // runs in a piece; small at first, for stores that free little
	mostPiece  = 1024
	mostSpare  = 64 // pieces
)

func (q *deferredFrees) len() int { return q.n }

func (q *deferredFrees) push(r deferredFree) {
	last := len(q.pieces) - 1
	if last < 0 || len(q.pieces[last]) == cap(q.pieces[last]) {
		q.pieces = append(q.pieces, q.piece())
		last++
	}
	q.pieces[last] = append(q.pieces[last], r)
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

// oldest returns the run that shift will remove, valid until the next change; nil: the queue is
// empty.
func (q *deferredFrees) oldest() *deferredFree {
	if q.n == 0 {
		return nil
	}
	return &q.pieces[0][q.gone]
}

// shift removes the oldest run. The queue is not empty.
func (q *deferredFrees) shift() deferredFree {
	r := q.pieces[0][q.gone]
	q.gone++
	q.n--
	if q.gone == len(q.pieces[0]) {
		q.drop(0)
	}
	return r
}

// pop removes the newest run. The queue is not empty.
func (q *deferredFrees) pop() deferredFree {
	at := len(q.pieces) - 1
	last := &q.pieces[at]
	left := len(*last) - 1
	r := (*last)[left]
	*last = (*last)[:left]
	q.n--
	if left == 0 || at == 0 && left == q.gone {
		q.drop(at)
	}
	return r
}

// drop removes a piece without runs: the first or the last one.
func (q *deferredFrees) drop(i int) {
	if i == 0 {
		q.gone = 0
	}
	q.keep(q.pieces[i])
	q.pieces = slices.Delete(q.pieces, i, i+1)
}

func (q *deferredFrees) keep(piece []deferredFree) {
	if len(q.spare) < mostSpare {
		q.spare = append(q.spare, piece[:0])
	}
}

// takeAll moves all runs of another queue, from which none was shifted, behind the newest. That
// queue gets the spare pieces of this one.
func (q *deferredFrees) takeAll(from *deferredFrees) {
	q.pieces, q.n = append(q.pieces, from.pieces...), q.n+from.n
	clear(from.pieces)
	from.pieces, from.n = from.pieces[:0], 0
	for _, p := range q.spare {
		from.keep(p)
	}
	q.spare = q.spare[:0]
}

// all iterates over the runs, from the oldest.
func (q *deferredFrees) all() iter.Seq[deferredFree] {
	return func(yield func(deferredFree) bool) {
		for i, p := range q.pieces {
			if i == 0 {
				p = p[q.gone:]
			}
			for _, r := range p {
				if !yield(r) {
					return
				}
			}
		}
	}
}
