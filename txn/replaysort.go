package txn

import (
	"cmp"
	"slices"

	"github.com/ebbkv/ebb/internal/offheap"
	"github.com/ebbkv/ebb/internal/prefetch"
	"github.com/ebbkv/ebb/wal"
)

// A batch holds operations of the log back until they are applied, and finds the order for that: by
// tree and key, because rows that are neighbours share a page, which is then found, copied and
// changed while it is at hand. An operation on one key looks at no other, so those on different
// keys may change places; those on one key stay in their order. Every other operation stays between
// what was before it and what comes after.
//
// What was added is looked at by a goroutine, as far as there is one, while more is added: see
// index. A batch knows no store and no file.
type replayBuffer struct {
	ops     []byte     // as in the redo, one after the other
	cost    int        // of them: see opCost
	commits []commitAt // whose operations these are
	slab    []byte     // where ops began

	index  replayIndex
	seen   int           // so many bytes of ops are the index's
	beside bool          // a goroutine looks at them
	chunks chan opChunk  // to the goroutine; nil: there is none now
	ended  chan struct{} // closed when it has ended
}

// commitAt is where in ops the operations of a commit, or of a piece of one, begin.
type commitAt struct {
	at  uint32
	lsn wal.LSN
}

// opChunk is ops up to the end of an operation, and where the part that nobody has looked at
// begins.
type opChunk struct {
	ops  []byte
	from int
}

// commitCost is what a commit costs in a batch, in bytes.
const commitCost = 16

// opChunkBytes are worth a wake of the goroutine, and maxOpChunks may wait for it.
const (
	opChunkBytes = 64 << 10
	maxOpChunks  = 64
)

// newReplayBuffer is for about room bytes of operations. Its memory is outside the Go heap as long
// as that is enough: in huge pages, since operations are read in the order of keys, which is any
// order of theirs. free ends it. beside says that a goroutine may help.
func newReplayBuffer(room int64, beside bool) *replayBuffer {
	b := &replayBuffer{
		beside: beside,
		index:  replayIndex{byTree: map[TreeID]int{}, order: offheap.List[uint32]{Off: true}},
	}
	if room > 0 {
		if slab, err := offheap.Alloc(int(room)); err == nil {
			b.slab, b.ops = slab, slab[:0]
		}
	}
	return b
}

// free gives the memory back. Nothing of the batch may be used afterwards.
func (b *replayBuffer) free() {
	b.stop()
	if b.slab != nil {
		_ = offheap.Free(b.slab) // nothing to do about a refusal at this point
	}
	b.index.free()
	*b = replayBuffer{}
}

// reset empties the batch and keeps its memory.
func (b *replayBuffer) reset() {
	b.stop()
	b.ops, b.commits, b.seen, b.cost = b.ops[:0], b.commits[:0], 0, 0
	b.index.reset()
}

// add takes a copy of whole operations of the commit at lsn. All operations but the last begin
// below 4 GiB.
func (b *replayBuffer) add(ops []byte, lsn wal.LSN) {
	if n := len(b.commits); n == 0 || b.commits[n-1].lsn != lsn {
		b.commits = append(b.commits, commitAt{uint32(len(b.ops)), lsn})
		b.cost += commitCost
	}
	b.ops = append(b.ops, ops...)
	if !b.beside || len(b.ops)-b.seen >= opChunkBytes {
		b.indexOps()
	}
}

// indexOps has all of ops looked at: now, or by the goroutine.
func (b *replayBuffer) indexOps() {
	p := opChunk{b.ops[:len(b.ops):len(b.ops)], b.seen}
	if b.seen = len(b.ops); p.from == b.seen {
		return
	}
	if !b.beside {
		b.index.add(p)
		return
	}
	if b.chunks == nil {
		b.chunks, b.ended = make(chan opChunk, maxOpChunks), make(chan struct{})
		go b.index.addAll(b.chunks, b.ended)
	}
	b.chunks <- p
}

// stop waits until the goroutine has looked at what it was handed, and ends it. The index may be
// used then.
func (b *replayBuffer) stop() {
	if b.chunks == nil {
		return
	}
	close(b.chunks)
	<-b.ended
	b.chunks, b.ended = nil, nil
}

// lsn is the position of the commit of the operation at at.
func (b *replayBuffer) lsn(at uint32) wal.LSN {
	i, found := slices.BinarySearchFunc(
		b.commits,
		at,
		func(c commitAt, at uint32) int { return cmp.Compare(c.at, at) },
	)
	if !found {
		i--
	}
	return b.commits[i].lsn
}

// sort finds the order of all that was added. From settled on in it, no tree and no key comes back.
func (b *replayBuffer) sort() (order []uint32, settled int) {
	b.indexOps()
	b.stop()
	x := &b.index
	settled = len(x.order.All)
	x.endRuns()
	return x.order.All, settled
}

// In the order of keys, operations lie anywhere in the batch: each is asked for when it is the
// prefetchDistance-th to come.
const prefetchDistance = 32

// prefetchBytes is how much of it: its head and key, and as a rule all of its value.
const prefetchBytes = 192

// prefetch asks for the operation at at.
func (b *replayBuffer) prefetch(at uint32) {
	prefetch.Bytes(b.ops[at:min(int(at)+prefetchBytes, len(b.ops))])
}
