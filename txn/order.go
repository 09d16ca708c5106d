package txn

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/ebbkv/ebb/internal/prefetch"
	"github.com/ebbkv/ebb/wal"
)

// A batch holds operations of the log back until they are applied, and finds the order for that: by tree and key, because
// rows that are neighbours share a page, which is then found, copied and changed while it is at hand. An operation on one
// key looks at no other, so those on different keys may change places; those on one key stay in their order. Every other
// operation stays between what was before it and what comes after.
//
// A batch knows no store and no file: it may be put in order beside everything else.
type batch struct {
	ops     []byte     // as in the redo, one after the other
	commits []commitAt // whose operations these are
	order   []uint32   // where in ops each operation begins, in the order to apply them

	runs   []keyRun // operations since the last one that kept its place
	byTree map[TreeID]int
}

// commitAt is where in ops the operations of a commit, or of a piece of one, begin.
type commitAt struct {
	at  uint32
	lsn wal.LSN
}

// A keyRun is operations on keys of one tree. Each is the head of its key, above where in ops it begins: in the order of
// these numbers, those with different heads are in the order of their keys, and those on one key in that of the log.
type keyRun struct {
	ops    []uint64
	first  []byte // key
	prefix int    // bytes that all keys share with it: heads begin behind
}

func newBatch(room int64) *batch {
	return &batch{ops: make([]byte, 0, room), byTree: map[TreeID]int{}}
}

// reset empties the batch and keeps its memory.
func (b *batch) reset() { b.ops, b.commits, b.order = b.ops[:0], b.commits[:0], b.order[:0] }

// add takes a copy of whole operations of the commit at lsn. All operations but the last begin below 4 GiB.
func (b *batch) add(ops []byte, lsn wal.LSN) {
	b.commits = append(b.commits, commitAt{uint32(len(b.ops)), lsn})
	b.ops = append(b.ops, ops...)
}

// lsn is the position of the commit of the operation at at.
func (b *batch) lsn(at uint32) wal.LSN {
	i, found := slices.BinarySearchFunc(b.commits, at, func(c commitAt, at uint32) int { return cmp.Compare(c.at, at) })
	if !found {
		i--
	}
	return b.commits[i].lsn
}

// sort finds the order. An operation that does not decode is the last one in it: who applies it finds out.
func (b *batch) sort() {
	for rest := b.ops; len(rest) > 0; {
		at := uint32(len(b.ops) - len(rest))
		r, more, err := decodeRedo(rest)
		if err == nil && r.onKey() {
			b.addToRun(r.id, r.key, at)
		} else {
			b.endRuns()
			b.order = append(b.order, at)
		}
		if err != nil {
			return
		}
		rest = more
	}
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
		i = len(b.runs)
		b.byTree[id] = i
		if i < cap(b.runs) {
			b.runs = b.runs[:i+1] // its memory is used again
		} else {
			b.runs = append(b.runs, keyRun{})
		}
		b.runs[i].first, b.runs[i].prefix = key, len(key)
	}
	r := &b.runs[i]
	for r.prefix > len(key) || !bytes.Equal(key[:r.prefix], r.first[:r.prefix]) {
		r.prefix--
	}
	r.ops = append(r.ops, uint64(at))
}

// endRuns adds the runs to the order, one after the other, and empties them.
func (b *batch) endRuns() {
	for i := range b.runs {
		r := &b.runs[i]
		for k, op := range r.ops {
			r.ops[k] |= uint64(head(b.key(op)[r.prefix:])) << 32
		}
		slices.Sort(r.ops)
		b.sortEqualHeads(r.ops)
		for _, op := range r.ops {
			b.order = append(b.order, uint32(op))
		}
		r.ops, r.first = r.ops[:0], nil
	}
	b.runs = b.runs[:0]
	clear(b.byTree)
}

// sortEqualHeads puts operations whose heads say nothing in the order of their whole keys, and then of the log.
func (b *batch) sortEqualHeads(ops []uint64) {
	for from := 0; from < len(ops); {
		to := from + 1
		for to < len(ops) && ops[to]>>32 == ops[from]>>32 {
			to++
		}
		if to-from > 1 {
			slices.SortStableFunc(ops[from:to], func(x, y uint64) int { return bytes.Compare(b.key(x), b.key(y)) })
		}
		from = to
	}
}

// key is that of an operation which has been decoded before.
func (b *batch) key(op uint64) []byte {
	r, _, _ := decodeRedo(b.ops[uint32(op):])
	return r.key
}

// head is the big-endian value of the first 4 bytes of b, padded with zeros: equal heads do not mean equal keys.
func head(b []byte) uint32 {
	if len(b) >= 4 {
		return binary.BigEndian.Uint32(b)
	}
	var h [4]byte
	copy(h[:], b)
	return binary.BigEndian.Uint32(h[:])
}
