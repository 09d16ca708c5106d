package txn

import (
	"github.com/ebbkv/ebb/internal/keyorder"
	"github.com/ebbkv/ebb/internal/offheap"
)

// replayIndex holds the offsets of buffered operations, in replay order as far as it is known. One
// goroutine at a time owns it.
type replayIndex struct {
	ops    []byte // of the newest chunk
	order  offheap.List[uint32]
	broken bool // the last operation does not decode

	// runs, the first used of them, hold key operations since the last operation of another kind,
	// by tree.
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

// reset empties the index and keeps its memory. endRuns has emptied the runs.
func (x *replayIndex) reset() {
	x.order.All, x.broken = x.order.All[:0], false
}

// addAll adds chunks until the channel is closed.
func (x *replayIndex) addAll(chunks <-chan opChunk, ended chan<- struct{}) {
	defer close(ended)
	for p := range chunks {
		x.add(p)
	}
}

// add indexes the operations of a chunk. One that does not decode is the last in the order: apply
// returns the error.
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

// mostRuns bounds the memory of runs: each run allocates some for its first operation.
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

// key is the key of an operation that decoded before.
func (x *replayIndex) key(at uint32) []byte {
	op := x.ops[at:]
	if put := fastDecodePut(op); put.end > 0 {
		return op[fastPutKeyAt:put.keyEnd]
	}
	r, _, _ := decodeRedo(op)
	return r.key
}
