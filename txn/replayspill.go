package txn

import (
	"slices"

	"github.com/ebbkv/ebb/pager"
)

// A replaySpill writes pages of replay on a goroutine while replay goes on. These pages do not change
// meanwhile: replay goes on under a new owner.
type replaySpill struct {
	ids  []pager.Pgid
	done chan error // nil: none is running
}

// spill is writer.spill on a goroutine. A replay that is short of space waits instead: pages that it
// frees meanwhile could not be reused.
func (p *replayer) spill() error {
	w, s := p.w, p.s
	if s.logOrder {
		return w.spill()
	}
	if !framesAreShort(w) {
		return nil
	}
	if err := p.endSpill(); err != nil {
		return err
	}
	ids := pagesToSpill(w)
	if len(ids) == 0 {
		return nil
	}
	r := replaySpill{ids: slices.Clone(ids), done: make(chan error, 1)}
	p.spilling = r
	s.serial++
	w.spillOwner = w.owner
	w.owner = s.serial
	w.mods++
	w.spillOver = s.pg.Pool.FrameBytes() + w.mostFrames
	write := func() { r.done <- s.pg.WriteEarly(r.ids) }
	if s.o.Inline {
		write()
	} else {
		go write()
	}
	return nil
}

// endSpill waits for the goroutine and frees the frames of its pages.
func (p *replayer) endSpill() error {
	r := p.spilling
	if p.spilling = (replaySpill{}); r.done == nil {
		return nil
	}
	if err := <-r.done; err != nil {
		return p.s.dataError(err)
	}
	w := p.w
	p.s.pg.FreeFrames(r.ids)
	w.spilledOwner = w.spillOwner
	w.spare = append(w.spare, w.freedInSpill...)
	w.freedInSpill = w.freedInSpill[:0]
	return nil
}
