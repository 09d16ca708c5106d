package txn

import (
	"cmp"
	"slices"

	"github.com/ebbkv/ebb/internal/keyorder"
	"github.com/ebbkv/ebb/internal/offheap"
	"github.com/ebbkv/ebb/internal/prefetch"
	"github.com/ebbkv/ebb/wal"
)

// A batch holds operations of the log back until they are applied, and finds the order for that: by tree and key, because
// rows that are neighbours share a page, which is then found, copied and changed while it is at hand. An operation on one
// key looks at no other, so those on different keys may change places; those on one key stay in their order. Every other
// operation stays between what was before it and what comes after.
//
// A batch knows no store and no file.
type batch struct {
	ops     []byte               // as in the redo, one after the other
	commits []commitAt           // whose operations these are
	order   offheap.List[uint32] // where in ops each operation begins, in the order to apply them
	settled int                  // from here on in order, no tree and no key comes back
	broken  bool                 // the last operation does not decode
	named   []place              // that operations name, of all batches so far

	runs   []keyorder.Run // operations on keys since the last one that kept its place, by tree: the first used ones
	used   int
	byTree map[TreeID]int
	slab   []byte // where ops began
}

// commitAt is where in ops the operations of a commit, or of a piece of one, begin.
type commitAt struct {
	at  uint32
	lsn wal.LSN
}

// newBatch is for about room bytes of operations. Its memory is outside the Go heap as long as that is enough: in huge pages, since
// operations are read in the order of keys, which is any order of theirs.
func newBatch(room int64) *batch {
	b := &batch{byTree: map[TreeID]int{}, order: offheap.List[uint32]{Off: true}}
	if room > 0 {
		if slab, err := offheap.Alloc(int(room)); err == nil {
			b.slab, b.ops = slab, slab[:0]
		}
	}
	return b
}

// free gives the memory back. Nothing of the batch may be used afterwards.
func (b *batch) free() {
	if b.slab != nil {
		_ = offheap.Free(b.slab) // nothing to do about a refusal at this point
	}
	b.order.Free()
	for i := range b.runs {
		b.runs[i].Free()
	}
	*b = batch{}
}

// reset empties the batch and keeps its memory.
func (b *batch) reset() {
	b.ops, b.commits, b.order.All, b.broken = b.ops[:0], b.commits[:0], b.order.All[:0], false
}

// add takes a copy of whole operations of the commit at lsn, and looks at their keys while they are at hand. All operations but the
// last begin below 4 GiB. An operation that does not decode is the last one in the order: who applies it finds out.
func (b *batch) add(ops []byte, lsn wal.LSN) {
	if b.broken {
		return
	}
	b.commits = append(b.commits, commitAt{uint32(len(b.ops)), lsn})
	from := len(b.ops)
	b.ops = append(b.ops, ops...)
	for rest := b.ops[from:]; len(rest) > 0; {
		at := uint32(len(b.ops) - len(rest))
		r, more, err := decodeRedo(rest)
		if err == nil && r.names() {
			b.named = append(b.named, r.place)
		}
		if err == nil && r.onKey() {
			b.addToRun(r.id, r.key, at)
		} else {
			b.endRuns()
			b.order.Add(at)
		}
		if b.broken = err != nil; b.broken {
			return
		}
		rest = more
	}
}

// lsn is the position of the commit of the operation at at.
func (b *batch) lsn(at uint32) wal.LSN {
	i, found := slices.BinarySearchFunc(b.commits, at, func(c commitAt, at uint32) int { return cmp.Compare(c.at, at) })
	if !found {
		i--
	}
	return b.commits[i].lsn
}

// sort finds the order of all that was added.
func (b *batch) sort() {
	b.settled = len(b.order.All)
	b.endRuns()
}

// In the order of keys, operations lie anywhere in the batch: each is asked for when it is the askAhead-th to come.
const askAhead = 8

// askBytes is how much of it: its head and key, and as a rule all of its value.
const askBytes = 192

// ask asks for the operation at at.
func (b *batch) ask(at uint32) { prefetch.Bytes(b.ops[at:min(int(at)+askBytes, len(b.ops))]) }

func (b *batch) addToRun(id TreeID, key []byte, at uint32) {
	i, ok := b.byTree[id]
	if !ok {
		i = b.used
		b.byTree[id] = i
		b.used++
		if i == len(b.runs) {
			b.runs = append(b.runs, keyorder.OffHeap())
		}
	}
	b.runs[i].Add(key, at)
}

// endRuns adds the runs to the order, one after the other, and empties them.
func (b *batch) endRuns() {
	for i := range b.used {
		b.runs[i].Places(&b.order, b.key)
		b.runs[i].Reset()
	}
	b.used = 0
	clear(b.byTree)
}

// key is that of an operation which has been decoded before.
func (b *batch) key(at uint32) []byte {
	r, _, _ := decodeRedo(b.ops[at:])
	return r.key
}
