package txn

import (
	"bytes"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/pager"
)

// A batch at random spends a quarter to a half of its time on looking for the ways to its leaves, and on waiting for them. Which keys it will change is
// known beforehand, so a scout looks for the ways of the rows to come on another processor: a goroutine beside the transaction. Where it
// has not come yet, because no processor had time, the transaction looks for itself.
//
// The scout reads the state that the transaction began with, in the same way. The writer lock keeps all of that where it is, and the
// transaction ends no sooner than the scout is off it: halt. What of that state changes all the same, leaves in frames and the rows that branches
// count, the scout does not look at. Errors that it meets are met again by whoever looks for himself.

// aheadKeys gives the keys that will be changed, in that order.
type aheadKeys interface {
	// Next fills keys, and says how many it has filled; fewer only at the end. What they point to stays until the transaction ends.
	Next(keys [][]byte) int
}

// How many changes are worth another processor, in a tree of how many rows: to wake another processor takes as long as some fifty of them, and a smaller tree
// is in every processor's cache.
const (
	defaultManyFrom = 128
	defaultManyRows = 64 << 10
)

// The scout is scoutRing rows ahead at most: what it has asked for is to be in a cache still when the transaction comes. If it has fallen behind it goes on
// scoutLead rows before the transaction.
const (
	scoutRing = 512
	scoutLead = 4 * tree.MaxWays
)

// scout is that of the store's writer.
type scout struct {
	s *Store

	// Of the transaction.
	out   bool // it is on its way
	id    TreeID
	stamp uint64 // of the tree, after what followed it
	taken int64  // rows for which the transaction has asked

	base  pager.Epoch // of the state that it is in
	guide tree.Guide

	// By row, modulo their number. Those in [at, found) are the transaction's, if the scout has not left them out, others the scout's.
	ring [scoutRing]tree.Scouted
	_    [64]byte
	at   atomic.Int64 // rows that the transaction has done
	_    [64]byte
	// found is the row that the scout has come to.
	found atomic.Int64
	rests atomic.Bool // it is too far ahead
	_     [64]byte

	mu   sync.Mutex // held while it looks for some ways; guards the fields below
	trip uint64     // which of its ways out this is
	keys aheadKeys  // nil: there are no more
	next int64      // the row that keys gives next
	some [tree.MaxWays][]byte
}

// Page, Near, Ask and Fetch make it a tree.Ahead.
func (c *scout) Page(ref pager.Ref) ([]byte, error) { return c.s.pg.Page(ref, c.base) }

func (c *scout) Near(ref pager.Ref, n int) []byte { return c.s.pg.Near(ref, c.base, n) }

func (c *scout) Ask(ref pager.Ref) { c.s.pg.Ask(ref) }

func (c *scout) Fetch(ref pager.Ref) ([]byte, error) { return c.s.pg.Fetch(ref, c.base) }

// sendScout tells which n keys of a tree Apply is going to change, and in which order, if nothing has been changed there by the transaction. It is
// a hint: whatever comes then comes to the same.
func (tx *Tx) sendScout(id TreeID, n int, keys aheadKeys) {
	w := tx.w
	if w == nil || tx.check() != nil || !tx.s.started || n < tx.s.o.ManyFrom || !tx.s.o.Inline && runtime.GOMAXPROCS(0) == 1 {
		return
	}
	c := w.scout
	if c == nil {
		c = &scout{s: tx.s}
		w.scout = c
	}
	c.halt()
	now, err := w.state(id)
	if err != nil || now.stamp != tx.s.head.trees.stamp(id) || now.t.Rows < tx.s.o.ManyRows {
		return
	}
	// To the first ones the transaction comes sooner.
	if keys.Next(c.some[:]) < len(c.some) || slices.IsSortedFunc(c.some[:], bytes.Compare) || !c.guide.Begin(c, now.t) {
		return
	}
	c.out, c.id, c.stamp, c.base, c.taken = true, id, now.stamp, w.base, 0
	c.at.Store(0)
	c.found.Store(0)
	c.rests.Store(false)
	c.mu.Lock()
	c.trip++
	c.keys, c.next = keys, int64(len(c.some))
	trip := c.trip
	c.mu.Unlock()
	c.send(trip)
}

// send has it go on.
func (c *scout) send(trip uint64) {
	if c.s.o.Inline {
		c.explore(trip)
		return
	}
	go c.explore(trip)
	go nothing() // The goroutine that was started last is left to this processor for a while, and no other one takes it.
}

func nothing() {}

// halt returns when the scout looks at nothing any more. It does not wait for one that nobody has found a processor for.
func (c *scout) halt() {
	if c == nil || !c.out {
		return
	}
	c.out = false
	c.mu.Lock()
	c.trip++
	c.keys = nil
	c.mu.Unlock()
	clear(c.ring[:]) // the keys are somebody else's
	clear(c.some[:])
}

// explore looks for ways until there are no more keys, it has come far ahead, or it is halted.
func (c *scout) explore(trip uint64) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	for c.step(trip) {
	}
}

// step looks for the ways of some rows.
func (c *scout) step(trip uint64) (more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.trip != trip || c.keys == nil {
		return false
	}
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(runtime.Error); !ok {
				panic(r)
			}
			// The map of a disk that cannot be read, or a damaged file that refers to a page which it counts as free, and which is being written anew.
			c.keys, more = nil, false
		}
	}()
	at := c.at.Load()
	if c.next+tree.MaxWays > at+scoutRing {
		c.rests.Store(true)
		return false
	}
	if c.next < at+tree.MaxWays && !c.skip(at+scoutLead) {
		return false
	}
	return c.look(c.some[:c.keys.Next(c.some[:])])
}

// skip leaves out the rows before that one, and says whether there are so many.
func (c *scout) skip(to int64) bool {
	for c.next < to {
		n := c.keys.Next(c.some[:])
		if c.next += int64(n); n < len(c.some) {
			c.keys = nil
			return false
		}
	}
	return true
}

// look looks for the ways of the rows that come next.
func (c *scout) look(keys [][]byte) (more bool) {
	found := c.ring[c.next%scoutRing:][:len(keys)]
	for i := range found {
		found[i].Key = keys[i]
	}
	if len(keys) < tree.MaxWays || c.guide.Scout(found) != nil {
		c.keys = nil // a last few are not worth it
		return false
	}
	c.next += int64(len(keys))
	c.found.Store(c.next)
	return true
}

// follow gives the transaction the ways of the changes that come next in a tree, if the scout has found them.
func (w *writer) follow(ways *tree.Ways, s *treeState, changes []Change) bool {
	c := w.scout
	if c == nil || !c.out || c.id != s.id {
		return false
	}
	if c.stamp != s.stamp { // It has been changed otherwise.
		c.halt()
		return false
	}
	ways.Guide = &c.guide
	row := c.taken
	c.taken += int64(len(changes))
	c.at.Store(row)
	found := c.found.Load()
	if found < row+scoutRing/2 && c.rests.CompareAndSwap(true, false) {
		c.send(c.trip)
	}
	i, n := row%scoutRing, int64(len(changes))
	return c.taken <= found && i+n <= scoutRing && ways.Follow(w, c.ring[i:i+n], changes)
}

// followed is told of the stamp that a tree has got from changes that were given to follow.
func (c *scout) followed(id TreeID, stamp uint64) {
	if c != nil && c.out && c.id == id {
		c.stamp = stamp
	}
}

// keysOf gives the keys of changes.
func keysOf(changes []Change) aheadKeys { return &changeKeys{changes} }

type changeKeys struct{ rest []Change }

func (k *changeKeys) Next(keys [][]byte) (n int) {
	for n < min(len(keys), len(k.rest)) {
		keys[n] = k.rest[n].Key
		n++
	}
	k.rest = k.rest[n:]
	return n
}
