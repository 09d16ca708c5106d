package txn

import (
	"fmt"

	tree "github.com/ebbkv/ebb/btree"
)

// ascendingRun is puts of one tree that follow each other in the order in which operations of the
// log are applied, so that their keys rise, or are the same. Those behind all keys of the tree fill
// its last leaf, and make leaves of their own behind that: a log that has most of a store is
// applied as a bulk load is.
type ascendingRun struct {
	id    TreeID
	puts  []Change // that were not applied yet: of all; slices point into the batch
	ended bool     // the operation behind them is not one of them
	buf   []Change // as many as are gathered at a time

	last []byte // unless nil, the last key of the tree, whose leaf is full: puts are behind it
}

const (
	// maxAscendingRun are enough to make many leaves at a time.
	maxAscendingRun = 1024
	// smallAscendingRun are still in the nearest cache of a processor when they are put one by one.
	// Those that come after them are asked for meanwhile.
	smallAscendingRun = prefetchDistance
)

// enough says that there is no need to gather more.
func (g *ascendingRun) enough() bool { return g.ended || len(g.puts) >= len(g.buf)/2 }

// collect decodes operations at order, which begins with that of the first put, as long as they are
// puts of one tree. Without puts, first is the first operation.
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
		if g.ended = err != nil || r.id != g.id || r.id == 0 || r.id >= trashBit || r.op != opPut && r.op != opPutTag; !g.ended {
			g.add(Change{Key: r.key, Value: r.value, Tag: r.tag}, pageSize)
		}
	}
	return first, nil
}

// add adds a put, if key and value stand in a leaf.
func (g *ascendingRun) add(c Change, pageSize int) {
	g.ended = len(c.Key) == 0 || len(c.Key) > tree.MaxKey(pageSize) || len(c.Value) > tree.MaxInline(pageSize)
	if !g.ended {
		g.puts = append(g.puts, c)
	}
}

// apply carries out some of the puts, from the first one on, and says how many: those that have
// room in the last leaf of the tree, behind all of its keys, and those that fill leaves behind
// that, which are written at once if write says so; or one.
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
			if !ref.IsZero() { // There was room. Since they are full, there is one more put, with a key above theirs.
				w.set(g.id, s.t)
				g.last = g.puts[rows-1].Key
				return rows, wrote(leaves)
			}
		}
	}
	return g.putOne(w)
}

// setBatchSize changes how many puts are gathered.
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
