package cf

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/ebbkv/ebb/txn"
)

// Names caches catalog entries, so that a look-up costs one probe instead of a descent. It holds the
// entries of one state of the catalog, identified by the stamp of its tree, and is filled on demand:
// a new family costs the others one descent each, not a copy. The zero value is ready to use, and
// safe for concurrent use.
type Names struct {
	current atomic.Pointer[generation]
}

// generation caches entries of one state of the catalog.
type generation struct {
	stamp uint64 // of the catalog's tree: no two states share one
	seq   uint64 // of a transaction that saw this state

	// the entry of Default, which most calls use: found without a hash; nil: not looked up yet
	usual atomic.Pointer[Family]
	table atomic.Pointer[table]
	mu    sync.Mutex // held while an entry is added
	count int        // entries in table; guarded by mu
}

// table is open addressing with linear probing. Slots only change from nil to an entry, so probes
// need no lock. A table is at most half full: every probe ends at a nil slot.
type table struct {
	slots []atomic.Pointer[Family] // a power of two
}

var seed = maphash.MakeSeed()

// Lookup is the function Lookup through the cache. A transaction that changed the catalog bypasses
// it: no other transaction sees its state.
func (n *Names) Lookup(tx *txn.Tx, name string) (*Family, error) {
	s := tx.Stamp(txn.CatalogTree)
	g := n.current.Load()
	if g == nil || g.stamp != s {
		if g = n.renew(g, s, tx.Seq()); g == nil {
			return Lookup(tx, name) // An old snapshot: the cache belongs to newer ones.
		}
	}
	if f := g.find(name); f != nil {
		return f, nil
	}
	f, err := Lookup(tx, name)
	if err == nil {
		g.add(f)
	}
	return f, err
}

// renew installs an empty generation for s, unless a newer one is there.
func (n *Names) renew(old *generation, s, seq uint64) *generation {
	if old != nil && old.seq > seq {
		return nil
	}
	g := &generation{stamp: s, seq: seq}
	g.table.Store(&table{slots: make([]atomic.Pointer[Family], 16)})
	if !n.current.CompareAndSwap(old, g) {
		return nil
	}
	return g
}

func (g *generation) find(name string) *Family {
	if name == Default {
		return g.usual.Load()
	}
	t := g.table.Load()
	for i := maphash.String(seed, name); ; i++ {
		f := t.slots[i&uint64(len(t.slots)-1)].Load()
		if f == nil || f.Name == name {
			return f
		}
	}
}

func (g *generation) add(f *Family) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.find(f.Name) != nil {
		return
	}
	if f.Name == Default {
		g.usual.Store(f)
		return
	}
	t := g.table.Load()
	if g.count++; g.count*2 > len(t.slots) {
		bigger := &table{slots: make([]atomic.Pointer[Family], 2*len(t.slots))}
		for i := range t.slots {
			if e := t.slots[i].Load(); e != nil {
				bigger.insert(e)
			}
		}
		g.table.Store(bigger)
		t = bigger
	}
	t.insert(f)
}

func (t *table) insert(f *Family) {
	for i := maphash.String(seed, f.Name); ; i++ {
		slot := &t.slots[i&uint64(len(t.slots)-1)]
		if slot.Load() == nil {
			slot.Store(f)
			return
		}
	}
}
