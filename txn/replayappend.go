package txn

import (
	"fmt"

	tree "github.com/ebbkv/ebb/btree"
)

// ascendingRun collects puts of one tree that follow each other in replay order: their keys ascend
// or repeat. Puts behind all keys of the tree fill its last leaf, and build new leaves behind that:
// replay of a log with most of a store is a bulk load.
type ascendingRun struct {
	id    TreeID
	puts  []Change // not applied yet: a part of buf; slices point into the replay buffer
	ended bool     // the next operation does not belong to the run
	buf   []Change // its length bounds the puts collected at a time

	last []byte // unless nil, the last key of the tree: its leaf is full, and the puts are behind it
}

const (
	// maxAscendingRun puts build many leaves at a time.
	maxAscendingRun = 1024
	// smallAscendingRun puts stay in the processor's nearest cache while they are applied one by
	// one and the next ones are prefetched.
	smallAscendingRun = prefetchDistance
)

// enough says that the run need not collect more.
func (g *ascendingRun) enough() bool { return g.ended || len(g.puts) >= len(g.buf)/2 }

// collect decodes the operations at order, which begins with the first put of the run, as long as
// they are puts of one tree. Without puts, first is the first operation.
func (g *ascendingRun) collect(b *replayBuffer, order []uint32, pageSize int) (first redo, err error) {
	if g.buf == nil {
		g.setBatchSize(smallAscendingRun)
	}
	n := copy(g.buf, g.puts)
	if g.puts = g.buf[:n]; n == 0 {
		g.ended = false
	}
	for i := n; i < len(g.buf) && !g.ended; i++ {
		if i == len(order) {
			g.ended = true
			break
		}
		if i+prefetchDistance < len(order) {
			b.prefetch(order[i+prefetchDistance])
		}
		op := b.ops[order[i]:]
		if p := fastDecodePut(op); p.end > 0 && i > 0 && p.id == g.id {
			g.add(Change{Key: op[fastPutKeyAt:p.keyEnd], Value: op[p.valueAt:p.end]}, pageSize)
			continue
		}
		r, _, err := decodeRedo(op)
		if i == 0 {
			if err != nil {
				return r, fmt.Errorf("%w: %w", errBadRedo, err)
			}
			first, g.id = r, r.id
		}
		g.ended = err != nil || r.id != g.id || r.id == 0 || r.id >= trashBit ||
			r.op != opPut && r.op != opPutTag
		if !g.ended {
			g.add(Change{Key: r.key, Value: r.value, Tag: r.tag}, pageSize)
		}
	}
	return first, nil
}

// add adds a put if key and value fit into a leaf.
func (g *ascendingRun) add(c Change, pageSize int) {
	g.ended = len(c.Key) == 0 || len(c.Key) > tree.MaxKey(pageSize) ||
		len(c.Value) > tree.MaxInline(pageSize, len(c.Key))
	if !g.ended {
		g.puts = append(g.puts, c)
	}
}

// apply applies some of the puts, from the first on, and returns their number: those that fit into
// the last leaf of the tree, behind all of its keys; or those that fill new leaves behind it, which
// are written at once if write is set; or one.
func (g *ascendingRun) apply(w *writer, write bool, wrote func(leaves int) error) (n int, err error) {
	s, err := w.state(g.id)
	if err != nil {
		return 0, err
	}
	last := g.last
	g.last = nil
	if last == nil {
		f := w.insertCursor(g.id)
		if !f.Beyond(g.puts[0].Key) {
			g.setBatchSize(smallAscendingRun)
			return g.putOne(w)
		}
		g.setBatchSize(maxAscendingRun)
		last = f.LastKey()
		if n = f.Append(&s.t, g.puts); n > 0 {
			w.set(g.id, s.t)
			w.cursorsAt = w.mods
			return n, nil
		}
	}
	if write {
		if leaves, rows := w.fullLeaves(g.puts); leaves > 0 {
			ref, err := w.writeLeaves(s, g.puts, leaves, last)
			if err != nil {
				return 0, err
			}
			if !ref.IsZero() { // full leaves: a put with a key above theirs follows
				w.set(g.id, s.t)
				g.last = g.puts[rows-1].Key
				return rows, wrote(leaves)
			}
		}
	}
	return g.putOne(w)
}

// setBatchSize bounds the puts collected at a time.
func (g *ascendingRun) setBatchSize(n int) {
	if n > cap(g.buf) {
		all := make([]Change, n)
		g.puts = all[:copy(all, g.puts)]
		g.buf = all
	}
	g.buf = g.buf[:max(n, len(g.puts))]
}

func (g *ascendingRun) putOne(w *writer) (int, error) {
	c := &g.puts[0]
	_, err := w.put(g.id, c.Key, c.Value, c.Tag)
	return 1, err
}
