package txn

import (
	"fmt"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/keyorder"
	"github.com/ebbkv/ebb/internal/offheap"
	"github.com/ebbkv/ebb/internal/prefetch"
)

// replayBuffer buffers operations on single keys, to apply those of each tree in key order:
// neighbouring rows share a page, which is then found and copied once. An operation on one key
// depends on no other key, and those on one key keep their order. Operations of other kinds are
// not buffered: they are applied after all earlier ones.
type replayBuffer struct {
	ops   offheap.List[byte]    // encoded as in the redo
	runs  map[TreeID]*replayRun // by tree
	order []*replayRun          // by the first operation of each
	cost  int                   // of all operations
	most  int                   // bound on cost, unless one operation costs more
}

// replayRun is the buffered operations of a tree.
type replayRun struct {
	id   TreeID
	keys keyorder.Run // offsets in ops by key
}

const (
	// replayBufferBytes of operations repay to sort them: more rows share a leaf. The buffer is a
	// part of the cache, at most a replayBufferFraction of it.
	replayBufferBytes    = 64 << 20
	replayBufferFraction = 3
	// opCost is the cost of an operation beside its bytes: its head, also while heads are sorted,
	// and its offset.
	opCost = 8 + 8 + 4
	// runCost is the cost of a tree's first operation.
	runCost = 1 << 10
)

// applyWith makes p apply the log, of at most logBytes, with w. free frees the memory of the buffer.
func (p *replayer) applyWith(w *writer, logBytes int64) {
	o := &p.s.o
	most := min(o.CacheBytes/replayBufferFraction, replayBufferBytes)
	w.setFrames(o.CacheBytes - most)
	if p.s.logOrder {
		most = 0
	}
	p.w = w
	p.buffer = replayBuffer{
		ops: offheap.List[byte]{Off: true}, runs: map[TreeID]*replayRun{}, most: int(most),
	}
	p.buffer.ops.Room(int(min(most, logBytes)))
}

// free frees the memory of the buffer.
func (p *replayer) free() { p.buffer.ops.Free() }

// addOp buffers an operation, or applies it at once. A transaction could have written it: the tree
// is there, since all operations that create or drop one were applied.
func (p *replayer) addOp(r redo, raw []byte) error {
	if err := p.w.valid(r, uint64(len(r.value))); err != nil {
		return err
	}
	b := &p.buffer
	if !r.isKeyOp() {
		if err := p.applyBuffer(); err != nil {
			return err
		}
		return p.applyNow(r)
	}
	cost := len(raw) + opCost
	run := b.runs[r.id]
	if run == nil {
		if _, ok := p.w.trees.get(r.id); !ok {
			return treeError(r.id)
		}
		cost += runCost
	}
	if b.cost > 0 && b.cost+cost > b.most {
		if err := p.applyBuffer(); err != nil {
			return err
		}
		run = nil
	}
	if run == nil {
		run = &replayRun{id: r.id}
		b.runs[r.id], b.order = run, append(b.order, run)
	}
	at := len(b.ops.All)
	b.ops.Room(len(raw))
	b.ops.All = append(b.ops.All, raw...)
	b.cost += cost
	run.keys.Add(b.key(uint32(at)), uint32(at))
	return nil
}

// key is the key of the operation at an offset.
func (b *replayBuffer) key(at uint32) []byte {
	r, _, _ := decodeRedo(b.ops.All[at:])
	return r.key
}

// applyNow applies an operation that is not buffered.
func (p *replayer) applyNow(r redo) error {
	if err := p.w.spill(); err != nil {
		return err
	}
	err := p.w.apply(r)
	if err == nil && p.s.logOrder && (r.op == opDrop || r.op == opClear) {
		err = p.w.emptyTrash()
	}
	return err
}

// emptyTrash frees the pages of dropped trees. In the original run checkpoints did, even those that
// then failed for lack of space or were interrupted: later commits could allocate the pages of
// trees that no checkpoint had reached.
func (w *writer) emptyTrash() error {
	for {
		if none, err := w.reclaimTree(); none || err != nil {
			return err
		}
	}
}

// applyBuffer applies the buffered operations and empties the buffer.
func (p *replayer) applyBuffer() error {
	b := &p.buffer
	var places offheap.List[uint32]
	for _, run := range b.order {
		places.All = places.All[:0]
		run.keys.Places(&places, b.key)
		for at := 0; at < len(places.All); {
			n, err := p.applySome(run.id, places.All[at:])
			if err != nil {
				return err
			}
			at += n
		}
	}
	b.ops.All, b.cost, b.order = b.ops.All[:0], 0, b.order[:0]
	clear(b.runs)
	return nil
}

// prefetchOpBytes is the prefetched part of an operation, which is at a random place of the buffer:
// head, key, and usually the whole value.
const prefetchOpBytes = 192

// applySome applies operations of a tree from the first place on, puts and deletes together, and
// returns their number.
func (p *replayer) applySome(id TreeID, places []uint32) (n int, err error) {
	if err := p.w.spill(); err != nil {
		return 0, err
	}
	ops := p.buffer.ops.All
	for _, at := range places[min(ApplyRows, len(places)):min(2*ApplyRows, len(places))] {
		prefetch.Bytes(ops[at:min(int(at)+prefetchOpBytes, len(ops))])
	}
	var buf [ApplyRows]Change
	changes := buf[:0]
	for _, at := range places[:min(ApplyRows, len(places))] {
		r, _, err := decodeRedo(ops[at:])
		if err != nil {
			return 0, err
		}
		if r.op == opSetTag || r.op == opPutNamed {
			if len(changes) == 0 {
				return 1, p.w.apply(r)
			}
			break
		}
		changes = append(changes, Change{Key: r.key, Value: r.value, Tag: r.tag, Delete: r.op == opDelete})
	}
	return len(changes), p.w.applyChanges(id, changes, nil)
}

// finish applies the rest of the buffer, and makes the last commit the newest version.
func (p *replayer) finish() error {
	defer p.free()
	if err := p.applyBuffer(); err != nil {
		return err
	}
	h := *p.s.head // not visible yet: the store is being opened
	h.seq, h.mark = p.last.seq, p.last.mark
	p.s.head = &h
	return nil
}

// valid verifies that a transaction could have changed such a tree, and such a row of it with a
// value of size bytes.
func (w *writer) valid(r redo, size uint64) error {
	if r.id >= trashBit || r.id == 0 {
		return fmt.Errorf("%w: tree %d", errBadRedo, r.id)
	}
	if r.isKeyOp() && (len(r.key) == 0 || len(r.key) > tree.MaxKey(w.PageSize()) || size > tree.MaxValue) {
		return fmt.Errorf("%w: key of %d bytes, value of %d", errBadRedo, len(r.key), size)
	}
	if r.op == opPutNamed && r.size <= tree.MaxInline(w.PageSize(), len(r.key)) {
		return fmt.Errorf("%w: a named value of %d bytes", errBadRedo, r.size)
	}
	return nil
}

// apply applies an operation that is valid.
func (w *writer) apply(r redo) (err error) {
	switch r.op {
	case opPutNamed:
		err = w.putLogRef(r)
	case opLeaves:
		err = w.replayLeafRun(r)
	case opRange:
		_, err = w.deleteRange(r.id, r.key, r.value)
	case opSetTag:
		_, err = w.setTag(r.id, r.key, r.tag)
	case opNextTree:
		if r.id >= maxTree {
			return fmt.Errorf("%w: trees up to number %d", errBadRedo, r.id)
		}
		w.nextID = max(w.nextID, r.id)
	default:
		err = w.shape(r.op, r.id)
	}
	return err
}
