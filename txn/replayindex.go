package txn

import (
	"github.com/ebbkv/ebb/internal/keyorder"
	"github.com/ebbkv/ebb/internal/offheap"
)

// An index is where the operations of a batch begin, in the order to apply them as far as that is
// known. One goroutine at a time has it.
type replayIndex struct {
	ops    []byte // of the piece that came last
	order  offheap.List[uint32]
	broken bool // the last operation does not decode

	// operations on keys since the last one that kept its place, by tree: the first used ones
	runs   []keyorder.Run
	used   int
	byTree map[TreeID]int
}

func (x *replayIndex) free() {
	x.order.Free()
	for i := range x.runs {
		x.runs[i].Free()
	}
}

// reset empties the index, whose runs have ended, and keeps its memory.
func (x *replayIndex) reset() {
	x.order.All, x.broken = x.order.All[:0], false
}

// addAll adds pieces until there are no more.
func (x *replayIndex) addAll(pieces <-chan opChunk, ended chan<- struct{}) {
	defer close(ended)
	for p := range pieces {
		x.add(p)
	}
}

// add looks at the operations of a piece. One that does not decode is the last one in the order:
// who applies it finds out.
func (x *replayIndex) add(p opChunk) {
	x.ops = p.ops
	for rest := p.ops[p.from:]; len(rest) > 0 && !x.broken; {
		at := len(p.ops) - len(rest)
		if put := fastDecodePut(rest); put.end > 0 {
			x.addToRun(put.id, rest[fastPutKeyAt:put.keyEnd], uint32(at))
			rest = rest[put.end:]
			continue
		}
		r, more, err := decodeRedo(rest)
		if err == nil && r.isKeyOp() {
			x.addToRun(r.id, r.key, uint32(at))
		} else {
			x.endRuns()
			x.order.Add(uint32(at))
		}
		x.broken = err != nil
		rest = more
	}
}

func (x *replayIndex) addToRun(id TreeID, key []byte, at uint32) {
	i, ok := x.byTree[id]
	if !ok {
		if x.used == mostRuns {
			x.endRuns()
		}
		i = x.used
		x.byTree[id] = i
		x.used++
		if i == len(x.runs) {
			x.runs = append(x.runs, keyorder.OffHeap())
		}
	}
	x.runs[i].Add(key, at)
}

// mostRuns bounds the memory of runs: each has some, however few operations are on its tree.
const mostRuns = 4096

// endRuns adds the runs to the order, one after the other, and empties them.
func (x *replayIndex) endRuns() {
	for i := range x.used {
		x.runs[i].Places(&x.order, x.key)
		x.runs[i].Reset()
	}
	x.used = 0
	clear(x.byTree)
}

// key is that of an operation which has been decoded before.
func (x *replayIndex) key(at uint32) []byte {
	op := x.ops[at:]
	if put := fastDecodePut(op); put.end > 0 {
		return op[fastPutKeyAt:put.keyEnd]
	}
	r, _, _ := decodeRedo(op)
	return r.key
}
