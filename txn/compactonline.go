package txn

import (
	"context"
	"time"

	"github.com/ebbkv/ebb/internal/mapfault"
	"github.com/ebbkv/ebb/pager"
)

// Compact makes the file shorter while transactions go on (ADRs 0051 and 0059): pages from a limit on move to
// free space below it, in steps that each hold the writer lock for a moment; a checkpoint frees the
// pages that they left, and the next one cuts the free end of the file off.
//
// A step is a version with the same rows that no log record names. What a crash leaves:
//
//	crash ...                          recovery
//	after steps, before a checkpoint   the durable state and its log: no page has moved
//	while a checkpoint is written      as for every checkpoint: the state before, or the one after
//	before the file is truncated       a file that is longer than its pages
//	while it is truncated              either length: the durable state has no page behind the cut
//
// A large value is written to its new place at once, into free space, as every large value is. Its
// old pages, which a record may name, stay until the checkpoint.

// Bounds of a compaction.
const (
	compactStepPages = 64      // moved by a step, about
	compactStepReads = 64      // pages that a step reads, more than the depth of a tree
	compactChunk     = 1 << 20 // least bytes that are moved between two checkpoints
	compactSlack     = 16      // pages: a tail that is shorter is not worth a checkpoint
	compactUnsaid    = 128     // pages, beside a tenth of those in use, whose cause is not explained
	compactCuts      = 3       // the first cut may free pages of the free map behind it
	compactPasses    = 16      // bound of the passes over all trees: commits may fill what was freed
	slackFraction    = 16      // the limit leaves this part of the used pages free below it
	chunkFraction    = 8       // part of the cache that is moved between two checkpoints
)

// compactMostHeld bounds the time of a step for which Compact gives way.
const compactMostHeld = 5 * time.Millisecond

// CompactOptions are the options of Store.Compact.
type CompactOptions struct {
	Progress func(done, total uint64) // pages, after each step; nil: none
	// GiveWay is called without a lock after a step for which a writer has waited; nil: not at all.
	GiveWay   func(ctx context.Context, held time.Duration)
	StepPages int  // that a step moves, or reads to fill; 0: the default
	Fill      bool // neighbouring pages whose entries fit into fewer are joined first
}

// CompactResult is what a Compact has done, also if it ends with an error.
type CompactResult struct {
	Before, After int64  // bytes of the main file
	Moved         uint64 // pages
	Saved         uint64 // pages, by Fill
	Pinned        uint64 // pages of the tail that snapshots and backups keep
	LimitedBy     CompactLimit
}

// CompactLimit is what keeps a file longer than its pages after a Compact.
type CompactLimit string

// Values of CompactLimit.
const (
	LimitNone      CompactLimit = ""
	LimitSnapshots CompactLimit = "snapshots"    // they, or backups, read pages of the tail
	LimitValues    CompactLimit = "large values" // no run of free pages below is long enough
	LimitWrites    CompactLimit = "writes"       // commits use up the space below
)

// compaction is the state of a call of Compact.
type compaction struct {
	CompactResult
	s     *Store
	ctx   context.Context
	o     CompactOptions
	limit pager.Pgid
	room  uint64 // pages that commits need beside a pass
	done  uint64 // pages that were moved, or read to fill
	total uint64 // these, and those that are to come
	chunk int64  // bytes moved since the last checkpoint of this compaction
	kept  int    // large values without a place further down, in the last pass
}

// Compact moves pages down and cuts the end of the file off. See kv.DB.Compact.
func (s *Store) Compact(ctx context.Context, o CompactOptions) (CompactResult, error) {
	s.open.Add(1)
	defer s.open.Add(-1)
	if ctx == nil {
		ctx = context.Background()
	}
	if o.StepPages == 0 {
		o.StepPages = compactStepPages
	}
	c := &compaction{s: s, ctx: ctx, o: o}
	err := s.canWrite()
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = lock(ctx, s.checkpointer.compacting)
	}
	if err != nil {
		return c.CompactResult, err
	}
	defer func() { <-s.checkpointer.compacting }()
	defer s.pg.Alloc.LiftCeiling()
	err = mapfault.Guard(s.finalFault, c.run)
	return c.CompactResult, err
}

func (c *compaction) run() error {
	err := c.locked(func() error {
		c.Before = c.s.pg.Alloc.FileBytes()
		c.After = c.Before
		return nil
	})
	if err != nil {
		return err
	}
	if c.o.Fill {
		if err := c.fill(); err != nil {
			return err
		}
	}
	for n := range compactPasses {
		if err := c.checkpoint(false); err != nil { // what was freed becomes free
			return err
		}
		left, err := c.plan()
		if err != nil {
			return err
		}
		moved := c.Moved
		if left > 0 {
			if err := c.pass(left); err != nil {
				return err
			}
		}
		if c.Moved > moved && n+1 < compactPasses {
			continue
		}
		if shorter, err := c.cut(); err != nil || !shorter {
			return err
		}
	}
	return nil
}

// locked runs fn with the writer lock of a store that can be written.
func (c *compaction) locked(fn func() error) error {
	if err := c.s.lockHousekept(c.ctx); err != nil {
		return err
	}
	defer c.s.unlockWriter()
	return fn()
}

// plan chooses the limit and sets the ceiling there. left is the number of pages to move; 0: the file
// is about as short as it can be.
func (c *compaction) plan() (left uint64, err error) {
	err = c.locked(func() error {
		a := &c.s.pg.Alloc
		waiting := a.Unfree() // for a checkpoint or for snapshots: commits beside need as many again
		c.limit = c.lowest(waiting + c.room)
		if !c.tooLong(c.limit) || c.s.epoch >= lastEpoch {
			return nil
		}
		if err := a.SetCeiling(c.limit); err != nil {
			return c.s.spaceError(err)
		}
		left, _ = a.From(c.limit)
		if c.s.started || left == 0 && a.FreeTail() <= compactSlack {
			return nil
		}
		return c.s.startLog()
	})
	return left, err
}

// lowest is the limit for a store with this many pages of working room.
func (c *compaction) lowest(room uint64) pager.Pgid {
	used := c.s.pg.Alloc.UsedPages()
	return pager.Pgid(used + used/slackFraction + room + compactSlack)
}

// tooLong says whether enough pages lie behind the limit.
func (c *compaction) tooLong(limit pager.Pgid) bool {
	return c.s.pg.Alloc.Pages() > uint64(limit)+compactSlack
}

// pass moves pages of all trees from the limit on, as long as there is space below it.
func (c *compaction) pass(left uint64) error {
	r := &relocation{s: c.s, limit: c.limit, reads: compactStepReads}
	before := c.Moved
	c.total = c.done + left
	for !r.done {
		if err := contextErr(c.ctx); err != nil {
			return err
		}
		err := c.step(func() (done, written int, err error) {
			moved, err := r.step(c.o.StepPages)
			c.Moved += uint64(moved)
			return moved, moved, err
		})
		if err != nil {
			if pager.NoSpace(err) && c.Moved > before { // a checkpoint frees what was moved
				break
			}
			return err
		}
		if err := c.checkpointIfDue(); err != nil {
			return err
		}
	}
	c.kept = r.kept
	if c.s.pg.Alloc.Ceiling() == 0 { // commits have used up the space below
		return c.locked(func() error {
			waiting := c.s.pg.Alloc.Unfree()
			c.room = max(2*c.room, waiting-min(waiting, c.Moved-before))
			return nil
		})
	}
	return nil
}

// checkpointIfDue makes a checkpoint once enough was written.
func (c *compaction) checkpointIfDue() error {
	chunk := max(c.s.o.CacheBytes/chunkFraction, compactChunk)
	if c.chunk == 0 || c.chunk < chunk && !c.s.checkpointer.due() { // 0: maybe there is no log
		return nil
	}
	return c.checkpoint(false)
}

// step runs fn, which returns pages that it is done with and pages that it has written, with the writer
// lock.
func (c *compaction) step(fn func() (done, written int, err error)) error {
	if err := c.s.checkpointer.waitForFrames(c.ctx); err != nil {
		return err
	}
	var held time.Duration
	waited := false
	err := c.locked(func() error {
		began := time.Now()
		done, written, err := fn()
		c.s.queue.makeVisible()
		c.done += uint64(done)
		c.chunk += int64(written) * int64(c.s.pg.PageSize())
		held, waited = time.Since(began), c.s.HasWaiters()
		return err
	})
	if err != nil {
		return err
	}
	if c.total = max(c.total, c.done); c.o.Progress != nil {
		c.o.Progress(c.done, c.total)
	}
	if waited && c.o.GiveWay != nil { // a step that has waited for the disk says nothing about the next
		c.o.GiveWay(c.ctx, min(held, compactMostHeld))
	}
	return nil
}

// checkpoint makes the steps durable. force makes one even if nothing has changed. It ends with ctx,
// the checkpoint itself goes on.
func (c *compaction) checkpoint(force bool) error {
	k := &c.s.checkpointer
	c.chunk = 0
	run := func() error {
		if err := lock(c.ctx, k.mu); err != nil {
			return err
		}
		defer func() { <-k.mu }()
		if force {
			err := c.locked(func() error {
				c.s.w.begin()
				c.s.w.publishMaintenance()
				c.s.queue.makeVisible()
				return nil
			})
			if err != nil {
				return err
			}
		}
		return k.run(c.ctx)
	}
	if c.s.o.Inline {
		return run()
	}
	done := make(chan error, 1)
	k.background.run(func() { done <- run() })
	select {
	case err := <-done:
		return err
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

// cut makes the file as short as its last page in use allows, and says what is in the way. shorter
// says that its checkpoints have freed pages, without which the limit would have been lower.
func (c *compaction) cut() (shorter bool, err error) {
	free := uint64(compactSlack + 1)
	for n := 0; n < compactCuts && free > compactSlack; n++ {
		if n > 0 {
			if err := c.checkpoint(true); err != nil {
				return false, err
			}
		}
		err := c.locked(func() error {
			free = c.s.pg.Alloc.FreeTail()
			return nil
		})
		if err != nil {
			return false, err
		}
	}
	k := &c.s.checkpointer
	if err := lock(c.ctx, k.mu); err != nil {
		return false, err
	}
	defer func() { <-k.mu }()
	var ended <-chan struct{}
	err = c.locked(func() (err error) {
		a := &c.s.pg.Alloc
		if ended, err = a.TrimTail(); err != nil {
			return c.s.fail(err)
		}
		c.After = a.FileBytes()
		limit := c.lowest(a.Unfree() + c.room)
		shorter = limit < c.limit && c.tooLong(limit)
		return c.explain()
	})
	if err == nil && ended != nil {
		if err = await(c.ctx, ended); err == nil {
			err = c.locked(func() error { // commits beside may have kept some of it
				c.After = c.s.pg.Alloc.FileBytes()
				return nil
			})
		}
	}
	if err != nil || shorter {
		return shorter, err
	}
	return false, k.punchHoles(k.s.pg.LastMeta().Pages, false)
}

// explain finds what keeps pages behind the limit of a store without snapshots and writers.
func (c *compaction) explain() error {
	a, limit := &c.s.pg.Alloc, c.lowest(0)
	c.LimitedBy, c.Pinned = LimitNone, 0
	if used := a.UsedPages(); a.Pages() <= used+used/10+compactUnsaid {
		return nil
	}
	if err := a.SetCeiling(limit); err != nil {
		return c.s.spaceError(err)
	}
	_, waiting := a.From(limit)
	switch {
	case c.s.reclaimer.pinnedPages > 0:
		c.LimitedBy, c.Pinned = LimitSnapshots, min(waiting, uint64(c.s.reclaimer.pinnedPages))
	case c.kept > 0:
		c.LimitedBy = LimitValues
	default:
		c.LimitedBy = LimitWrites
	}
	return nil
}
