package crashfs

import (
	"slices"
)

// unitKind is what sort of change may persist or not.
type unitKind uint8

const (
	unitData   unitKind = iota
	unitGrow            // the size becomes size
	unitShrink          // the size becomes size, and what is past it is gone
	unitAdd             // name comes to be ino
	unitDel             // name is no longer ino
)

// A unit is the smallest change that persists or does not. An operation makes several, next to each
// other in the pending list: a write one for its growth and one for each block, a rename an add and
// a del.
type unit struct {
	kind unitKind
	seq  int // index of its operation in the trace
	ino  int
	i    int    // unitData: which block
	v    *block // unitData: its new version, all earlier writes included
	size int64
	name string
	dir  string // whose sync makes an entry change durable
}

// entry is a name in a directory; lists of them are sorted by name.
type entry struct {
	name string
	hash uint64 // of name
	ino  int
}

// winode is what the walker knows of an inode.
type winode struct {
	durable content // data and size as of the last sync of any kind
	line    content // durable with all that is pending: what a good sync would make durable
	// hard is the size that the last Sync made durable. soft are the growths since then that only
	// SyncData, or a direct write, made durable, oldest first; the last one is durable.size.
	// Profile Size may lose them.
	hard int64
	soft []unit

	holes holes // as programs see them

	// cache is what programs read, where a failed sync has parted it from line.
	cache    content
	hasCache bool
}

// A walker goes through a trace and knows at each crash point what is durable and what is pending.
type walker struct {
	ops     []Op
	pos     int       // entries gone through
	inodes  []*winode // by number; 0 is unused
	entries []entry   // durable
	live    []entry   // what programs see
	pending []unit    // in the order of the trace
	dead    []content // what deleted files and cut ends held, oldest first; for profile Stale
}

// maxDead bounds how many deleted files are remembered.
const maxDead = 6

func newWalker(base []imageFile, dead []content, ops []Op) *walker {
	w := &walker{ops: ops, inodes: make([]*winode, 1, len(base)+1), dead: slices.Clone(dead)}
	for i := range base {
		f := &base[i]
		c := content{size: f.size, blocks: f.blocks, sum: f.sum, shared: true}
		w.inodes = append(w.inodes, &winode{durable: c, line: c, hard: c.size, holes: slices.Clone(f.holes)})
		w.entries = append(w.entries, entry{f.name, f.nameHash, i + 1})
	}
	w.live = slices.Clone(w.entries)
	return w
}

func (w *walker) inode(ino int) *winode {
	for len(w.inodes) <= ino {
		w.inodes = append(w.inodes, &winode{})
	}
	return w.inodes[ino]
}

func findEntry(list []entry, name string) (int, bool) {
	return slices.BinarySearchFunc(list, name, func(e entry, name string) int {
		switch {
		case e.name < name:
			return -1
		case e.name > name:
			return 1
		}
		return 0
	})
}

func addEntry(list []entry, name string, ino int) []entry {
	i, ok := findEntry(list, name)
	if ok {
		list[i].ino = ino
		return list
	}
	return slices.Insert(list, i, entry{name, nameHash(name), ino})
}

// delEntry removes name if it stands for ino.
func delEntry(list []entry, name string, ino int) []entry {
	if i, ok := findEntry(list, name); ok && list[i].ino == ino {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// step goes through the next entry of the trace.
func (w *walker) step() {
	op, seq := &w.ops[w.pos], w.pos
	w.pos++
	switch op.Kind {
	case KindWrite:
		w.write(op, seq)
	case KindTruncate:
		w.truncate(op, seq)
	case KindPunch:
		w.punch(op, seq)
	case KindReserve:
		w.inode(op.Ino).holes.fill(op.Off, op.Size)
	case KindSync, KindSyncData, KindDirect:
		w.syncFile(op)
	case KindSyncDir:
		w.syncDir(op)
	case KindCreate:
		w.inode(op.Ino)
		w.live = addEntry(w.live, op.Name, op.Ino)
		w.pend(unit{kind: unitAdd, seq: seq, ino: op.Ino, name: op.Name, dir: op.dir()})
	case KindRemove:
		w.live = delEntry(w.live, op.Name, op.Ino)
		w.bury(&w.inode(op.Ino).line)
		w.pend(unit{kind: unitDel, seq: seq, ino: op.Ino, name: op.Name, dir: op.dir()})
	case KindRename:
		if i, ok := findEntry(w.live, op.NewName); ok {
			w.bury(&w.inode(w.live[i].ino).line)
		}
		w.live = addEntry(delEntry(w.live, op.Name, op.Ino), op.NewName, op.Ino)
		w.pend(unit{kind: unitAdd, seq: seq, ino: op.Ino, name: op.NewName, dir: op.dir()})
		w.pend(unit{kind: unitDel, seq: seq, ino: op.Ino, name: op.Name, dir: op.dir()})
	}
}

func (w *walker) pend(u unit) { w.pending = append(w.pending, u) }

// bury remembers what a file held that is deleted now.
func (w *walker) bury(c *content) {
	if c.sum == 0 {
		return
	}
	if len(w.dead) == maxDead {
		w.dead = slices.Clone(w.dead[1:])
	}
	w.dead = append(w.dead, c.share())
}

func (w *walker) write(op *Op, seq int) {
	f := w.inode(op.Ino)
	if end := op.Off + int64(len(op.Data)); end > f.line.size {
		f.line.size = end
		w.pend(unit{kind: unitGrow, seq: seq, ino: op.Ino, size: end})
	}
	forBlocks(op.Data, op.Off, func(i, at int, part []byte) {
		v := f.line.block(i).overlaid(part, at)
		f.line.set(i, v)
		w.pend(unit{kind: unitData, seq: seq, ino: op.Ino, i: i, v: v})
	})
	f.holes.fill(op.Off, int64(len(op.Data)))
	if f.hasCache {
		f.cache.write(op.Data, op.Off)
	}
}

func (w *walker) truncate(op *Op, seq int) {
	f := w.inode(op.Ino)
	switch {
	case op.Size > f.line.size:
		w.pend(unit{kind: unitGrow, seq: seq, ino: op.Ino, size: op.Size})
	case op.Size < f.line.size:
		w.bury(&f.line)
		f.line.cut(op.Size)
		w.pend(unit{kind: unitShrink, seq: seq, ino: op.Ino, size: op.Size})
	}
	f.line.size = op.Size
	f.holes.cut(op.Size)
	if f.hasCache {
		f.cache.cut(op.Size)
		f.cache.size = op.Size
	}
}

func (w *walker) syncFile(op *Op) {
	f := w.inode(op.Ino)
	switch {
	case op.Outcome == Failed || op.Outcome == Ignored:
		return
	case op.Outcome == Dropped:
		if !f.hasCache {
			f.cache, f.hasCache = f.line.share(), true
		}
		f.line = f.durable.share()
		w.drop(func(u *unit) bool { return u.kind <= unitShrink && u.ino == op.Ino })
		return
	case op.Kind == KindDirect:
		w.syncDirect(f, op)
		return
	}
	soften := op.Kind == KindSyncData
	w.drop(func(u *unit) bool {
		if u.kind > unitShrink || u.ino != op.Ino {
			return false
		}
		if soften {
			f.soften(u)
		}
		return true
	})
	f.durable = f.line.share()
	if !soften {
		f.hard, f.soft = f.durable.size, nil
	}
}

// soften notes a change of size that became durable without a full sync. A cut is durable in every
// profile.
func (f *winode) soften(u *unit) {
	switch u.kind {
	case unitGrow:
		f.soft = append(f.soft[:len(f.soft):len(f.soft)], *u)
	case unitShrink:
		f.hard, f.soft = u.size, nil
	}
}

// syncDirect makes just the bytes of one direct write durable. Pending versions of the blocks
// around it get them too: whatever persists of those later, it does not take this back.
func (w *walker) syncDirect(f *winode, op *Op) {
	seq, cut := -1, false
	for i := range w.pending {
		switch u := &w.pending[i]; {
		case u.ino != op.Ino:
		case u.kind == unitShrink:
			cut = true
		case u.kind == unitData && sameBytes(w.ops[u.seq].Data, op.Data):
			seq = u.seq
		}
	}
	if seq < 0 {
		return
	}
	if cut {
		// The size that this write needs cannot be durable without the cut before it: take the
		// write for a SyncData.
		w.syncFile(&Op{Kind: KindSyncData, Ino: op.Ino})
		return
	}
	before := f.durable.size
	f.durable.write(op.Data, op.Off)
	if f.durable.size > before {
		f.soften(&unit{kind: unitGrow, seq: seq, ino: op.Ino, size: f.durable.size})
	}
	w.drop(func(u *unit) bool {
		// A growth to less than what is durable now means nothing any more.
		return u.seq == seq || u.ino == op.Ino && u.kind == unitGrow && u.size <= f.durable.size
	})
	forBlocks(op.Data, op.Off, func(i, at int, part []byte) {
		for j := range w.pending {
			if u := &w.pending[j]; u.kind == unitData && u.ino == op.Ino && u.i == i {
				u.v = u.v.overlaid(part, at)
			}
		}
	})
}

// sameBytes reports whether a and b are one slice, not only equal.
func sameBytes(a, b []byte) bool { return len(a) == len(b) && len(a) > 0 && &a[0] == &b[0] }

func (w *walker) syncDir(op *Op) {
	if op.Outcome == Failed || op.Outcome == Ignored {
		return
	}
	w.drop(func(u *unit) bool {
		if u.kind < unitAdd || u.dir != op.Name {
			return false
		}
		if op.Outcome == Done {
			w.entries = u.apply(w.entries)
		}
		return true
	})
}

// apply makes an entry change in list.
func (u *unit) apply(list []entry) []entry {
	if u.kind == unitAdd {
		return addEntry(list, u.name, u.ino)
	}
	return delEntry(list, u.name, u.ino)
}

// drop removes the pending units that done says, in order.
func (w *walker) drop(done func(u *unit) bool) {
	kept := w.pending[:0]
	for i := range w.pending {
		if !done(&w.pending[i]) {
			kept = append(kept, w.pending[i])
		}
	}
	clear(w.pending[len(kept):])
	w.pending = kept
}

// visible reports which inodes have, or may get, a name. Changes of others no longer matter.
func (w *walker) visible() []bool {
	seen := make([]bool, len(w.inodes))
	for i := range w.entries {
		seen[w.entries[i].ino] = true
	}
	for i := range w.pending {
		if u := &w.pending[i]; u.kind == unitAdd {
			seen[u.ino] = true
		}
	}
	return seen
}
