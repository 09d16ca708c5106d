package txn

import (
	"fmt"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/keyorder"
	"github.com/ebbkv/ebb/internal/offheap"
	"github.com/ebbkv/ebb/internal/prefetch"
	"github.com/ebbkv/ebb/wal"
)

// replayBuffer buffers the operations of the log, to apply those on single keys in the order of
// their trees and keys: neighbouring rows share a page, which is then found and copied once. An
// operation on one key depends on no other key, and those on one key keep their order. An operation
// of another kind is applied after all earlier ones, and before all later ones.
type replayBuffer struct {
	ops  offheap.List[byte]    // encoded as in the redo
	runs []*replayRun          // in the order in which they are applied
	open map[TreeID]*replayRun // runs that later operations on keys join
	last *replayRun            // the run that was joined last; nil: none
	cost int                   // of all operations
	most int                   // bound on cost, unless one operation costs more

	overflowed bool // the verifying replayer has found more than the buffer may hold
}

// replayRun is operations on single keys of a tree, or one operation of another kind, without keys.
type replayRun struct {
	id   TreeID
	lsn  wal.LSN      // of the commit of the first operation
	keys keyorder.Run // offsets in ops by key
	at   int          // offset in ops of an operation of another kind
}

const (
	// replayBufferBytes are enough for a log of the default length. The buffer is a part of the
	// cache, at most a replayBufferFraction of it.
	replayBufferBytes    = 128 << 20
	replayBufferFraction = 3
	// replayFrames bounds the frames of replay. Pages behind the cursor do not change again before
	// the buffer is empty: the disk writes them while others are made.
	replayFrames = 4 << 20
	// opCost is the cost of an operation beside its bytes: its head, also while heads are sorted,
	// and its offset.
	opCost = 8 + 8 + 4
	// runCost is the cost of a run.
	runCost = 1 << 10
)

// newReplayBuffer returns the buffer for a log of at most logBytes.
func newReplayBuffer(s *Store, logBytes int64) replayBuffer {
	b := replayBuffer{ops: offheap.List[byte]{Off: true}, open: map[TreeID]*replayRun{}}
	if !s.logOrder {
		b.most = int(min(s.o.CacheBytes/replayBufferFraction, replayBufferBytes))
	}
	b.ops.Room(int(min(int64(b.most), logBytes))) // ops does not move: runs keep keys in it
	return b
}

// applyWith makes p apply operations with w. free frees the memory of the buffer.
func (p *replayer) applyWith(w *writer) {
	p.w = w
	w.setFrames(min(p.s.o.CacheBytes-int64(p.buffer.most), replayFrames))
}

// free frees the memory of the buffer. It may be called again, and without a replayer.
func (p *replayer) free() {
	if p != nil {
		_ = p.endSpill() // after another error
		p.buffer.ops.Free()
	}
}

// bufferOp buffers an operation, which raw encodes. Of a full buffer the operations are applied
// first; the verifying replayer discards them.
func (p *replayer) bufferOp(r redo, raw []byte) error {
	b := &p.buffer
	run := b.last
	if run == nil || run.id != r.id {
		run = b.open[r.id]
	}
	cost := len(raw) + opCost
	if run == nil || !r.isKeyOp() {
		cost += runCost
	}
	if b.cost > 0 && b.cost+cost > b.most {
		if p.w == nil {
			b.discard()
		} else if err := p.applyBuffer(); err != nil {
			return err
		}
		run = nil
	}
	if b.overflowed {
		return nil
	}
	b.cost += cost
	at := len(b.ops.All)
	b.ops.Room(len(raw))
	b.ops.All = append(b.ops.All, raw...)
	if !r.isKeyOp() {
		b.closeRuns()
		b.runs = append(b.runs, &replayRun{id: r.id, lsn: p.lsn, at: at})
		return nil
	}
	key := r.key
	if run == nil {
		run = &replayRun{id: r.id, lsn: p.lsn}
		b.runs, b.open[r.id] = append(b.runs, run), run
		key = b.key(uint32(at)) // the run keeps its first key
	}
	run.keys.Add(key, uint32(at))
	b.last = run
	return nil
}

// closeRuns makes later operations begin runs of their own.
func (b *replayBuffer) closeRuns() {
	clear(b.open)
	b.last = nil
}

// discard drops the operations: the applying replayer reads the log again.
func (b *replayBuffer) discard() {
	b.ops.Free()
	b.closeRuns()
	b.runs, b.cost, b.overflowed = nil, 0, true
}

// op is the operation at an offset, which has been decoded before.
func (b *replayBuffer) op(at int) redo {
	r, _, _ := decodeRedo(b.ops.All[at:])
	return r
}

func (b *replayBuffer) key(at uint32) []byte { return b.op(int(at)).key }

// applyBuffer applies the buffered operations and empties the buffer.
func (p *replayer) applyBuffer() error {
	b := &p.buffer
	for _, run := range b.runs {
		if err := p.applyRun(run); err != nil {
			return p.badRecord(run.lsn, err)
		}
	}
	b.closeRuns()
	b.ops.All, b.runs, b.cost = b.ops.All[:0], b.runs[:0], 0
	return nil
}

// applyRun applies operations that a transaction could have written: the tree is there, since all
// operations that create or drop one were applied.
func (p *replayer) applyRun(run *replayRun) error {
	if run.keys.Len() == 0 {
		return p.applyNow(p.buffer.op(run.at))
	}
	if _, ok := p.w.trees.get(run.id); !ok {
		return treeError(run.id)
	}
	var places offheap.List[uint32]
	run.keys.Places(&places, p.buffer.key)
	for at := 0; at < len(places.All); {
		n, err := p.applySome(run.id, places.All[at:])
		if err != nil {
			return err
		}
		at += n
	}
	return nil
}

// applyNow applies an operation that is not on a single key.
func (p *replayer) applyNow(r redo) error {
	if err := p.spill(); err != nil {
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

// prefetchOpBytes is the prefetched part of an operation, which is at a random place of the buffer:
// head, key, and usually the whole value.
const prefetchOpBytes = 192

// applySome applies operations of a tree from the first place on, puts and deletes together, and
// returns their number.
func (p *replayer) applySome(id TreeID, places []uint32) (n int, err error) {
	if err := p.spill(); err != nil {
		return 0, err
	}
	ops := p.buffer.ops.All
	var buf [ApplyRows]Change
	changes := buf[:0]
	for i, at := range places[:min(ApplyRows, len(places))] {
		if ahead := i + ApplyRows; ahead < len(places) {
			next := int(places[ahead])
			prefetch.Bytes(ops[next:min(next+prefetchOpBytes, len(ops))])
		}
		r := p.buffer.op(int(at))
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
	err := p.applyBuffer()
	if err == nil {
		err = p.endSpill()
	}
	if err != nil {
		return err
	}
	h := *p.s.head // not visible yet: the store is being opened
	h.seq, h.mark = p.last.seq, p.last.mark
	p.s.head = &h
	return nil
}

// valid verifies that a transaction could have changed such a tree, and such a row of it with a
// value of size bytes.
func (p *replayer) valid(r redo, size uint64) error {
	pageSize := int(p.meta.PageSize)
	if r.id >= trashBit || r.id == 0 {
		return fmt.Errorf("%w: tree %d", errBadRedo, r.id)
	}
	if r.isKeyOp() && (len(r.key) == 0 || len(r.key) > tree.MaxKey(pageSize) || size > tree.MaxValue) {
		return fmt.Errorf("%w: key of %d bytes, value of %d", errBadRedo, len(r.key), size)
	}
	if r.op == opPutNamed && r.size <= tree.MaxInline(pageSize, len(r.key)) {
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
