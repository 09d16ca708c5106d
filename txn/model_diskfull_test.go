package txn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/vfs"
)

// fullRun is a random history on a disk that gets full, is killed then, and opened on a disk that
// is as full.
type fullRun struct {
	t     *testing.T
	rnd   *rand.Rand
	o     Options
	disk  *crashfs.Disk
	most  int64 // bytes that the disk has
	s     *Store
	trees map[TreeID]map[string]uint64 // what is committed
	next  int                          // for keys in order
	stats struct{ full, opened, asLogged, ahead, commits, bounded, held int }
	trace bool
	more  *rand.Rand // for what histories under MaxBytes have beside; nil: nothing
	held  []heldState
}

func (r *fullRun) logf(f string, a ...any) {
	if r.trace {
		r.t.Logf(f, a...)
	}
}

func digest(value []byte, tag int64) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(value)
	_, _ = fmt.Fprint(h, len(value), tag)
	return h.Sum64()
}

// fullTx changes a store and says what that makes of it.
type fullTx struct {
	*fullRun
	tx   *Tx
	undo []func()
	last []Run // applied by the commit
}

// now notes what a key holds from now on; 0: nothing.
func (x *fullTx) now(id TreeID, key []byte, sum uint64) {
	k := string(key)
	m := x.trees[id]
	was, ok := m[k]
	x.undo = append(x.undo, func() {
		if m[k] = was; !ok {
			delete(m, k)
		}
	})
	if m[k] = sum; sum == 0 {
		delete(m, k)
	}
}

func (r *fullRun) key() []byte {
	switch r.rnd.IntN(3) {
	case 0:
		r.next++
		return fmt.Appendf(nil, "key %08d", r.next)
	case 1:
		return fmt.Appendf(nil, "k%04d", r.rnd.IntN(400))
	}
	return fmt.Appendf(nil, "r%0*x", 8+r.rnd.IntN(40), r.rnd.IntN(20_000))
}

func (r *fullRun) value() []byte {
	var n int
	switch r.rnd.IntN(20) {
	case 0:
		n = r.s.logRefFrom() + r.rnd.IntN(100_000)
	case 1:
		n = r.rnd.IntN(40_000)
	case 2, 3:
		n = r.rnd.IntN(5000)
	case 4, 5, 6, 7, 8:
		n = r.rnd.IntN(1200)
	default:
		n = r.rnd.IntN(150)
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.rnd.IntN(251))
		if i > 16 {
			b[i] = b[i-16]
		}
	}
	return b
}

func (x *fullTx) put(id TreeID) error {
	key, value, tag := x.key(), x.value(), int64(x.rnd.IntN(3))
	x.logf("    put %d %q %d", id, key, len(value))
	_, err := x.tx.Put(id, key, value, tag)
	x.now(id, key, digest(value, tag))
	return err
}

// some is a key that is there, if there are any.
func (x *fullTx) some(id TreeID) []byte {
	lo := x.key()
	c := x.tx.Cursor(id)
	if c.Seek(lo) || c.First() {
		return bytes.Clone(c.Key())
	}
	return lo
}

func (x *fullTx) delete(id TreeID) error {
	key := x.some(id)
	x.logf("    delete %d %q", id, key)
	_, err := x.tx.Delete(id, key)
	x.now(id, key, 0)
	return err
}

func (x *fullTx) apply(id TreeID, d Durability) error {
	var changes []Change
	n, kind := 2+x.rnd.IntN(200), x.rnd.IntN(4)
	if kind == 0 {
		n *= 8
	}
	total := 0
	small := x.rnd.IntN(300)
	for range n {
		var c Change
		switch {
		case kind == 0 || kind == 1: // in order
			x.next++
			c = Change{Key: fmt.Appendf(nil, "key %08d", x.next),
				Value: fmt.Appendf(nil, "%0*d", 20+small, x.next)}
		case x.rnd.IntN(4) == 0:
			c = Change{Key: x.key(), Delete: true}
		case kind == 2:
			c = Change{Key: x.key(), Value: fmt.Appendf(nil, "%0*d", x.rnd.IntN(600), x.rnd.IntN(1000))}
		default:
			c = Change{Key: x.key(), Value: x.value()}
		}
		changes = append(changes, c)
		total += len(c.Key) + len(c.Value)
	}
	x.logf("    apply %d kind %d, %d changes, %d bytes", id, kind, n, total)
	x.last = []Run{{id, changes}}
	if d == Sync && x.tx.CanSubmitLog(x.last) {
		x.stats.ahead++
		x.logf("      ahead")
	}
	for _, c := range changes {
		if c.Delete {
			x.now(id, c.Key, 0)
		} else {
			x.now(id, c.Key, digest(c.Value, c.Tag))
		}
	}
	return nil
}

func (x *fullTx) deleteRange(id TreeID) error {
	lo, hi := x.some(id), x.key()
	if bytes.Compare(lo, hi) > 0 {
		lo, hi = hi, lo
	}
	x.logf("    range %d %q %q", id, lo, hi)
	_, err := x.tx.DeleteRange(id, lo, hi)
	for k := range x.trees[id] {
		if k >= string(lo) && k < string(hi) {
			x.now(id, []byte(k), 0)
		}
	}
	return err
}

func (x *fullTx) drop(id TreeID) error {
	x.logf("    drop %d", id)
	if err := x.tx.Drop(id); err != nil {
		return err
	}
	for k := range x.trees[id] {
		x.now(id, []byte(k), 0)
	}
	return x.tx.Create(id)
}

// commit does one transaction; shrinking ones delete only.
func (r *fullRun) commit(shrink bool) error {
	d := Durability(r.rnd.IntN(2))
	tx, err := r.s.Begin(nil, true)
	require.NoError(r.t, err)
	defer tx.Rollback()
	aimed := d
	if r.rnd.IntN(8) == 0 { // a transaction without a target may wait all the same
		aimed = Sync
	}
	tx.SetDurability(aimed)
	x := &fullTx{fullRun: r, tx: tx}
	r.logf("  tx %v", d)
	if !shrink && r.rnd.IntN(3) == 0 {
		err = x.apply(TreeID(8+r.rnd.IntN(3)), aimed)
	} else {
		for range 1 + r.rnd.IntN(12) {
			id := TreeID(8 + r.rnd.IntN(3))
			switch n := r.rnd.IntN(400); {
			case shrink && n < 40:
				err = x.deleteRange(id)
			case shrink:
				err = x.delete(id)
			case n == 0:
				err = x.drop(id)
			case n == 1:
				err = x.deleteRange(id)
			case n < 60:
				err = x.delete(id)
			default:
				err = x.put(id)
			}
			if err != nil {
				break
			}
		}
	}
	if err == nil {
		err = tx.Commit(d, x.last...)
	}
	if err == nil {
		r.stats.commits++
	}
	for i := len(x.undo) - 1; i >= 0 && err != nil; i-- {
		x.undo[i]()
	}
	r.logf("  -> %v", err)
	return err
}

func (r *fullRun) requireContents(when string) {
	tx, err := r.s.Begin(nil, false)
	require.NoError(r.t, err)
	defer tx.Rollback()
	r.requireSees(tx, r.trees, when)
}

func (r *fullRun) requireSees(tx *Tx, trees map[TreeID]map[string]uint64, when string) {
	for id, want := range trees {
		got := map[string]uint64{}
		c := tx.Cursor(id)
		for ok := c.First(); ok; ok = c.Next() {
			got[string(c.Key())] = digest(c.Value(), c.Tag())
		}
		require.NoError(r.t, c.Err())
		require.Len(r.t, got, len(want), "%s: tree %d", when, id)
		require.Equal(r.t, want, got, "%s: tree %d", when, id)
		require.EqualValues(r.t, len(want), tx.Rows(id))
	}
}

func (r *fullRun) sound(when string) {
	r.s.Check(context.Background(), func(p Problem) bool {
		if p.Kind != "closed" {
			r.t.Fatalf("%s: Check: %v", when, p)
		}
		return true
	})
}

// fill commits until the disk is full.
func (r *fullRun) fill() {
	misses := 0
	most := 1 + r.rnd.IntN(6)
	for range 3000 {
		r.beside()
		if r.rnd.IntN(100) == 0 {
			if err := r.s.Checkpoint(context.Background()); err != nil {
				require.ErrorIs(r.t, err, ErrNoSpace)
			}
		}
		if err := r.commit(false); err != nil {
			require.ErrorIs(r.t, err, ErrNoSpace)
			require.NoError(r.t, r.s.Failed())
			r.stats.full++
			if !errors.Is(err, vfs.ErrNoSpace) || strings.Contains(err.Error(), "the bound is") {
				r.stats.bounded++
			}
			if misses++; misses >= most {
				return
			}
		}
		require.NoError(r.t, r.s.Failed())
	}
}

// shrink deletes; on a disk that is full that has to be possible, perhaps after a checkpoint.
func (r *fullRun) shrink(n int) (done int) {
	for range n {
		r.beside()
		if err := r.commit(true); err != nil {
			require.ErrorIs(r.t, err, ErrNoSpace)
			require.NoError(r.t, r.s.Failed())
		} else {
			done++
		}
	}
	return done
}

func (r *fullRun) kill(exact bool) {
	if r.rnd.IntN(2) == 0 {
		require.NoError(r.t, r.s.Sync())
	}
	again := imageOf(r.t, r.disk).Disk(crashfs.Options{Direct: true, BlockSize: 512})
	used := again.Used()
	r.disk.SetCapacity(0)
	if !r.o.Inline {
		r.s.checkpointer.background.wait()
	}
	_ = r.s.Abandon()
	r.held = nil
	r.otherBound(used)
	room := r.most
	if exact {
		room = used
	}
	again.SetCapacity(room)
	r.disk = again
	r.o.FS = again
	reading := r.o
	reading.ReadOnly = true
	s, err := Open("/a.ebb", reading)
	require.NoError(r.t, err, "read-only")
	r.s = s
	r.requireContents("read-only")
	require.NoError(r.t, s.Close())
	require.Equal(r.t, used, again.Used())
	s, err = Open("/a.ebb", r.o)
	require.NoError(r.t, err, "open: used %d of %d", used, r.most)
	r.s = s
	r.stats.opened++
	if s.logOrder {
		r.stats.asLogged++
	}
	r.requireContents("after kill")
	r.sound("after kill")
	rows := 0
	for _, m := range r.trees {
		rows += len(m)
	}
	if rows > 0 {
		require.Positive(r.t, r.shrink(6), "deletes after open")
	}
	r.requireContents("after deletes")
	r.sound("after deletes")
	if r.rnd.IntN(2) == 0 {
		r.releaseSnapshots(0)
		require.NoError(r.t, s.Close())
		r.otherBound(again.Used())
		s, err = Open("/a.ebb", r.o)
		require.NoError(r.t, err)
		r.s = s
		r.requireContents("after close")
	}
	again.SetCapacity(r.most)
}
