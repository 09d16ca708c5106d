package txn

import (
	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/pager"
)

// The fill pass of Compact joins neighbouring pages whose entries fit into fewer (ADR 0055). Its steps
// are versions like those that move pages, and a crash leaves what it leaves there: no log record names
// them, so that a replay works on the pages as they were. It may copy as many pages more than the run
// did as were saved since the last checkpoint: their space is reserved until the next one.

// Bounds of the walks beside commits, which may make pages that can be joined faster than a walk joins
// them. Without commits the last walk saves none.
const (
	fillWorth = 16 // a further walk has to save this part of the pages in use
	fillWalks = 4  // so many
	fillReads = 16 // a walk reads so many times the pages in use, each step those above its leaves again
)

// fill walks over all trees until a walk is not worth it.
func (c *compaction) fill() error {
	var seq, used uint64
	last := false // of the epochs, which are for necessary checkpoints
	state := func() error {
		seq, used, last = c.s.head.seq, c.s.pg.Alloc.UsedPages(), c.s.epoch >= lastEpoch
		return nil
	}
	if err := c.locked(state); err != nil || last {
		return err
	}
	for beside := 0; beside < fillWalks; {
		before, began := c.Saved, seq
		c.total = c.done + used
		if err := c.fillAll(fillReads * (used + compactSlack)); err != nil {
			return err
		}
		if err := c.locked(state); err != nil {
			return err
		}
		saved := c.Saved - before
		if seq != began {
			beside++
		}
		if last || saved == 0 || seq != began && saved < used/fillWorth {
			return nil
		}
	}
	return nil
}

// fillAll walks over all trees once, and ends early if it has read so many pages.
func (c *compaction) fillAll(most uint64) error {
	f, end := &filling{s: c.s}, c.done+most
	for !f.done && c.done < end {
		if err := contextErr(c.ctx); err != nil {
			return err
		}
		err := c.step(func() (done, written int, err error) {
			r, err := f.step(c.o.StepPages)
			c.Saved += uint64(r.Saved)
			return r.Read, r.Moved, err
		})
		if err != nil && pager.NoSpace(err) && c.chunk > 0 { // a checkpoint frees what was joined
			err = c.checkpoint(false)
		} else if err == nil {
			err = c.checkpointIfDue()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// A filling is a walk over all trees.
type filling struct {
	s    *Store
	tree TreeID // start of the next step
	from []byte // first key of that step
	done bool
}

// step reads about so many pages, and joins them where they fit. Writer lock.
func (f *filling) step(reads int) (sum tree.Filled, err error) {
	w := &f.s.w
	w.begin()
	w.policy.Fit = pager.FitLowest
	next := *f
	for sum.Read < reads {
		id, t, found := w.trees.next(next.tree)
		if !found || id.Dropped() {
			next.done = true
			break
		}
		if id != next.tree {
			next.tree, next.from = id, nil
		}
		before := t.Root
		r, err := tree.Fill(w, &t, tree.FillStep{From: next.from, Reads: reads - sum.Read})
		if err != nil {
			w.rollback()
			return tree.Filled{}, f.s.spaceError(err)
		}
		if t.Root != before {
			w.set(id, t)
		}
		sum.Read, sum.Saved, sum.Moved = sum.Read+r.Read, sum.Saved+r.Saved, sum.Moved+r.Moved
		if next.from = r.Next; r.Next == nil {
			next.tree++
			sum.Read++ // a tree without branches takes time as well
		}
	}
	if sum.Saved > 0 {
		if !f.s.started { // a checkpoint needs a log: the next step does the same with one
			w.rollback()
			return tree.Filled{}, f.s.startLog()
		}
		if err := f.s.pg.Alloc.ReserveReplay(uint64(sum.Saved), pager.ForPut); err != nil {
			w.rollback()
			return tree.Filled{}, f.s.spaceError(err)
		}
	}
	if err := w.moved(); err != nil {
		return tree.Filled{}, err
	}
	*f = next
	return sum, nil
}
