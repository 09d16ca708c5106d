package txn

import (
	"cmp"
	"slices"

	"github.com/ebbkv/ebb/internal/offheap"
	"github.com/ebbkv/ebb/internal/prefetch"
	"github.com/ebbkv/ebb/wal"
)

// replayBuffer buffers operations of the log until they are applied, and sorts them: by tree and
// key, since neighbouring rows share a page, which is then found, copied and changed once. An
// operation on one key depends on no other key, so operations on different keys may be reordered;
// those on one key keep their order. Operations of other kinds keep their place between earlier and
// later ones.
//
// A goroutine, if allowed, indexes operations while more are added: see replayIndex. A replayBuffer
// knows no store and no file.
type replayBuffer struct {
	ops     []byte     // encoded as in the redo
	cost    int        // of them: see opCost
	commits []commitAt // their commits
	slab    []byte     // off-heap memory of ops

	index      replayIndex
	seen       int           // bytes of ops that went to the index
	concurrent bool          // a goroutine may index them
	chunks     chan opChunk  // to the goroutine; nil: it is not running
	ended      chan struct{} // closed when it has ended
}

// commitAt is the offset in ops of the operations of a commit, or of a part of one.
type commitAt struct {
	at  uint32
	lsn wal.LSN
}

// opChunk is ops up to the end of an operation, and the offset of the part that is not indexed.
type opChunk struct {
	ops  []byte
	from int
}

// commitCost is the cost of a commit in a buffer, in bytes.
const commitCost = 16

// opChunkBytes of operations repay a wakeup of the goroutine, and maxOpChunks may wait for it.
const (
	opChunkBytes = 64 << 10
	maxOpChunks  = 64
)

// newReplayBuffer allocates a buffer for about size bytes of operations, outside the Go heap: in
// huge pages, since key order visits operations at random. Beyond size it grows on the Go heap.
// free frees it. concurrent says that a goroutine may index.
func newReplayBuffer(size int64, concurrent bool) *replayBuffer {
	b := &replayBuffer{
		concurrent: concurrent,
		index:      replayIndex{byTree: map[TreeID]int{}, order: offheap.List[uint32]{Off: true}},
	}
	if size > 0 {
		if slab, err := offheap.Alloc(int(size)); err == nil {
			b.slab, b.ops = slab, slab[:0]
		}
	}
	return b
}

// free frees the memory. The buffer must not be used afterwards.
func (b *replayBuffer) free() {
	b.stop()
	if b.slab != nil {
		_ = offheap.Free(b.slab) // a failure only leaks memory
	}
	b.index.free()
	*b = replayBuffer{}
}

// reset empties the buffer and keeps its memory.
func (b *replayBuffer) reset() {
	b.stop()
	b.ops, b.commits, b.seen, b.cost = b.ops[:0], b.commits[:0], 0, 0
	b.index.reset()
}

// add copies whole operations of the commit at lsn. All operations but the last begin below 4 GiB.
func (b *replayBuffer) add(ops []byte, lsn wal.LSN) {
	if n := len(b.commits); n == 0 || b.commits[n-1].lsn != lsn {
		b.commits = append(b.commits, commitAt{uint32(len(b.ops)), lsn})
		b.cost += commitCost
	}
	b.ops = append(b.ops, ops...)
	if !b.concurrent || len(b.ops)-b.seen >= opChunkBytes {
		b.indexOps()
	}
}

// indexOps indexes all of ops: now, or in the goroutine.
func (b *replayBuffer) indexOps() {
	p := opChunk{b.ops[:len(b.ops):len(b.ops)], b.seen}
	if b.seen = len(b.ops); p.from == b.seen {
		return
	}
	if !b.concurrent {
		b.index.add(p)
		return
	}
	if b.chunks == nil {
		b.chunks, b.ended = make(chan opChunk, maxOpChunks), make(chan struct{})
		go b.index.addAll(b.chunks, b.ended)
	}
	b.chunks <- p
}

// stop waits until the goroutine has indexed its chunks, and ends it. Then the caller owns the
// index.
func (b *replayBuffer) stop() {
	if b.chunks == nil {
		return
	}
	close(b.chunks)
	<-b.ended
	b.chunks, b.ended = nil, nil
}

func (b *replayBuffer) lsn(at uint32) wal.LSN {
	i, found := slices.BinarySearchFunc(b.commits, at, func(c commitAt, at uint32) int {
		return cmp.Compare(c.at, at)
	})
	if !found {
		i--
	}
	return b.commits[i].lsn
}

// sort returns the order of all operations. From index settled on, no tree and no key repeats.
func (b *replayBuffer) sort() (order []uint32, settled int) {
	b.indexOps()
	b.stop()
	x := &b.index
	settled = len(x.order.All)
	x.endRuns()
	return x.order.All, settled
}

// In key order, operations are at random places of the buffer: prefetchDistance is how many
// operations ahead each is prefetched.
const prefetchDistance = 32

// prefetchBytes is the prefetched part: head, key, and usually the whole value.
const prefetchBytes = 192

func (b *replayBuffer) prefetch(at uint32) {
	prefetch.Bytes(b.ops[at:min(int(at)+prefetchBytes, len(b.ops))])
}
