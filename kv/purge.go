package kv

import (
	"context"
	"errors"
	"time"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/ttl"
	"github.com/ebbkv/ebb/txn"
)

// PurgeExpired deletes the expired keys of all families, in batches of PurgeOptions.Batch keys: one
// transaction each, with the store's durability. Writers run between batches (docs/ttl.md). The cost
// depends on the keys that are due only; without one, nothing is written.
//
// If a key is due it waits for the writer lock until ctx ends: inside a callback of Update use
// Tx.PurgeExpired. If ctx ends later, the purge stops between two batches. The result counts
// committed deletes, also with an error. Errors: ErrReadOnlyDB, ErrClockJump, ErrInvalidOptions, that
// of the context, that of OnExpire.
func (db *DB) PurgeExpired(ctx context.Context, o PurgeOptions) (PurgeResult, error) {
	p, err := db.purge(ctx, o, func(tx *txn.Tx) ([]*cf.Family, error) { return ttl.ExpiringFamilies(tx) })
	return p.result(), err
}

// PurgeExpired is DB.PurgeExpired for one family.
func (f *Family) PurgeExpired(ctx context.Context, o PurgeOptions) (PurgeResult, error) {
	p, err := f.db.purge(ctx, o, func(tx *txn.Tx) ([]*cf.Family, error) {
		fam, err := f.db.names.Lookup(tx, f.name)
		return []*cf.Family{fam}, err
	})
	return p.result(), err
}

// purger is one PurgeExpired in transactions of its own.
type purger struct {
	db      *DB
	ctx     context.Context
	o       PurgeOptions
	now     int64
	res     PurgeResult
	fam     *cf.Family // the family being purged, as of the last batch
	dropped            // partitions, whose rows Limit does not bound

	held     time.Duration // how long the last batch had the writer lock
	madeWait bool          // a writer waited for the last batch
}

func (db *DB) purge(
	ctx context.Context, o PurgeOptions, families func(*txn.Tx) ([]*cf.Family, error),
) (*purger, error) {
	p := &purger{db: db, ctx: background(ctx), o: o}
	if err := db.state(true); err != nil {
		return p, err
	}
	p.now = db.clock.read()
	list, err := p.due(families)
	if err == nil {
		err = o.check()
	}
	if err == nil {
		err = db.mayDelete(o.Force)
	}
	for _, f := range list {
		if err != nil || p.res.More {
			break
		}
		if o.Limit > 0 && p.res.Purged >= int64(o.Limit) {
			p.res.More = true
			break
		}
		p.fam = f
		err = p.family()
	}
	return p, err
}

// result counts the rows of dropped partitions as purged keys.
func (p *purger) result() PurgeResult {
	r := p.res
	r.Purged += p.rows
	return r
}

// mayDelete returns ErrClockJump if the clock has jumped, unless force makes the store accept the
// clock.
func (db *DB) mayDelete(force bool) error {
	if force {
		db.clock.jumped.Store(false)
	}
	if db.clock.jumped.Load() {
		return ErrClockJump
	}
	return nil
}

// due returns those of the families that have a due key. It does not wait for the writer lock.
func (p *purger) due(families func(*txn.Tx) ([]*cf.Family, error)) (list []*cf.Family, err error) {
	defer p.db.notifyShutdown()
	var tx txn.Tx
	if err := p.db.store.BeginRead(&tx, time.Time{}); err != nil {
		return nil, fromBelow(err)
	}
	defer tx.Rollback()
	err = p.db.guarded(func() error {
		all, err := families(&tx)
		if err != nil {
			return err
		}
		for _, f := range all {
			due, err := ttl.AnyDue(&tx, f, p.now)
			if err != nil {
				return err
			}
			if due {
				list = append(list, f)
			}
		}
		return nil
	})
	return list, fromBelow(err)
}

func (p *purger) family() error {
	before, start := p.result(), time.Now()
	err := p.batches()
	if done := p.result().Purged - before.Purged; p.db.onPurge != nil && (done > 0 || err != nil) {
		r := PurgeResult{Purged: done, Batches: p.res.Batches - before.Batches, More: p.res.More}
		p.db.onPurge(p.fam.Name, r, time.Since(start), err)
	}
	return err
}

func (p *purger) batches() error {
	for {
		if err := p.ctx.Err(); err != nil {
			p.res.More = true
			return err
		}
		n := p.o.Batch
		if n == 0 {
			n = batchKeys
		}
		if p.o.Limit > 0 {
			n = int(min(int64(n), int64(p.o.Limit)-p.res.Purged))
		}
		more, err := p.batch(n)
		if err != nil {
			p.res.More = true
			return err
		}
		if !more {
			return nil
		}
		if p.o.Limit > 0 && p.res.Purged >= int64(p.o.Limit) {
			p.res.More = true
			return nil
		}
		if p.madeWait {
			throttle(p.ctx, p.held, p.db.store.Commits)
		}
	}
}

// batch runs one transaction of at most n keys, or one that drops all due partitions.
func (p *purger) batch(n int) (more bool, err error) {
	tx, err := p.begin()
	if err != nil {
		return false, err
	}
	defer tx.finish(ErrTxnDone)
	began := time.Now()
	var done purgeStep
	if p.fam.Partitioned() {
		done, err = p.dropPartitions(tx)
	} else {
		done, more, err = p.deleteBatch(tx, n)
	}
	if err != nil {
		return more, err
	}
	if !done.s.Changed() && done.partitions == 0 { // The next batch would select the same rows, without end.
		p.res.More = more
		return false, nil
	}
	p.held, p.madeWait = time.Since(began), p.db.store.HasWaiters()
	if err := tx.commit(nil); err != nil {
		return more, err
	}
	p.db.purged.add(done)
	p.res.Batches++
	if p.fam.Partitioned() {
		p.partitions, p.rows = p.partitions+done.partitions, p.rows+done.s.Keys
		return false, nil
	}
	p.res.Purged += done.s.Keys
	if p.o.Progress != nil {
		p.o.Progress(p.res.Purged)
	}
	return more, nil
}

// begin begins a transaction at the instant of the purge.
func (p *purger) begin() (*Tx, error) {
	tx := newTx(p.db)
	if err := tx.start(p.ctx); err != nil {
		return nil, err
	}
	p.now = p.db.clock.clamp(p.now)
	tx.nowMs, tx.timed = p.now, true
	p.db.clock.stamp(tx.inner)
	return tx, nil
}

// deleteBatch deletes a batch of keys of the family.
func (p *purger) deleteBatch(tx *Tx, n int) (done purgeStep, more bool, err error) {
	defer tx.leave(tx.enter(), &err)
	if found, err := p.lookup(tx); err != nil || !found {
		return purgeStep{}, false, err
	}
	rows := ttl.Rows{Tx: tx.inner, Family: p.fam}
	s, more, err := rows.Purge(p.now, n, tx.expireCallbacks(p.fam, p.o.OnExpire))
	return purgeStep{base: p.fam.Base, s: s, how: inBatch}, more, tx.below(err)
}

// dropPartitions drops the due partitions of the family.
func (p *purger) dropPartitions(tx *Tx) (purgeStep, error) {
	if found, err := p.lookup(tx); err != nil || !found {
		return purgeStep{}, err
	}
	return tx.CF(p.fam.Name).dropDue(p.ctx)
}

// lookup finds the family of the purge, which may have been renamed, and its name reused, or which
// may have been dropped.
func (p *purger) lookup(tx *Tx) (found bool, err error) {
	f, err := p.db.names.Lookup(tx.inner, p.fam.Name)
	if errors.Is(err, cf.ErrNotFound) || (err == nil && f.Base != p.fam.Base) {
		f, err = cf.FindBase(tx.inner, p.fam.Base)
	}
	if errors.Is(err, cf.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fromBelow(err)
	}
	p.fam = f
	return true, nil
}

// PurgeExpired deletes the expired keys of all families within this transaction, at its instant.
// PurgeOptions.Batch has no effect, and an error of OnExpire rolls the whole purge back. The purge
// checks ctx now and then.
func (tx *Tx) PurgeExpired(ctx context.Context, o PurgeOptions) (PurgeResult, error) {
	return tx.purge(ctx, o, func() ([]*cf.Family, error) {
		if tx.db.placeholder != nil {
			return nil, nil
		}
		return ttl.ExpiringFamilies(tx.inner)
	})
}

// PurgeExpired is Tx.PurgeExpired for one family.
func (c *CF) PurgeExpired(ctx context.Context, o PurgeOptions) (PurgeResult, error) {
	return c.tx.purge(ctx, o, func() ([]*cf.Family, error) {
		if err := c.readyAny(true); err != nil {
			return nil, err
		}
		return []*cf.Family{c.fam}, nil
	})
}

// purge calls Progress outside of the transaction's lock: Progress may use the transaction.
func (tx *Tx) purge(
	ctx context.Context, o PurgeOptions, families func() ([]*cf.Family, error),
) (PurgeResult, error) {
	ctx = background(ctx)
	res, partitioned, err := tx.purgeFamilies(ctx, o, families)
	if err == nil {
		var list []*familyView
		for _, name := range partitioned {
			list = append(list, &tx.CF(name).familyView)
		}
		var s dropped
		s, err = tx.dropDue(ctx, list)
		res.Purged += s.rows
	}
	if o.Progress != nil && res.Purged > 0 {
		o.Progress(res.Purged)
	}
	return res, err
}

func (tx *Tx) purgeFamilies(
	ctx context.Context, o PurgeOptions, families func() ([]*cf.Family, error),
) (res PurgeResult, partitioned []string, err error) {
	defer tx.leave(tx.enter(), &err)
	if err := tx.alive(true); err != nil {
		return PurgeResult{}, nil, err
	}
	if tx.expiring.depth > 0 {
		return PurgeResult{}, nil, invalid("expired keys cannot be purged within OnExpireTx")
	}
	list, err := families()
	if err != nil {
		return PurgeResult{}, nil, fromBelow(err)
	}
	if err := o.check(); err != nil {
		return PurgeResult{}, nil, err
	}
	if err := tx.db.mayDelete(o.Force); err != nil {
		return PurgeResult{}, nil, err
	}
	for _, f := range list {
		if f.Partitioned() {
			partitioned = append(partitioned, f.Name)
		}
	}
	stands := tx.db.onExpire == nil && tx.db.onExpireTx == nil && o.OnExpire == nil
	if !stands { // A key that was reported and stays needs an error, which undoes the whole purge.
		start := tx.savepoint()
		defer func() { // after a panic, too
			if !stands && tx.inner != nil && tx.inner.Err() == nil {
				err = errors.Join(err, tx.rollbackTo(start))
				res = PurgeResult{More: true}
			}
		}()
	}
	res, purged, stopped, err := tx.purgeAll(ctx, list, o)
	if stands = stands || err == nil || stopped; stands && len(purged) > 0 {
		tx.onCommit = append(tx.onCommit, func() { tx.db.purged.add(purged...) })
	}
	return res, partitioned, tx.below(err)
}

// purgeAll purges families one after the other, a bounded number of keys at a time. stopped says that
// err is the error of ctx, between two of these steps: then the result stands. OnExpire may return
// the same error from a call of its own; stopped is false then.
func (tx *Tx) purgeAll(
	ctx context.Context, list []*cf.Family, o PurgeOptions,
) (res PurgeResult, purged []purgeStep, stopped bool, err error) {
	now := tx.instant()
	for _, f := range list {
		rows := ttl.Rows{Tx: tx.inner, Family: f}
		due, err := rows.AnyDue(now)
		total := purgeStep{base: f.Base, how: inTransaction}
		for more := due; more && err == nil; {
			n := int64(batchKeys)
			if o.Limit > 0 {
				n = min(n, int64(o.Limit)-res.Purged)
			}
			if n == 0 {
				res.More = true
				break
			}
			if err = ctx.Err(); err != nil {
				stopped = true
				break
			}
			var s ttl.PurgeStats
			s, more, err = rows.Purge(now, int(n), tx.expireCallbacks(f, o.OnExpire))
			total.s.Keys += s.Keys
			total.s.Bytes += s.Bytes
			res.Purged += s.Keys
			if s.Keys > 0 {
				tx.db.clock.observeExpired(now) // also if the transaction is rolled back
			}
		}
		if total.s.Keys > 0 {
			purged = append(purged, total)
		}
		if err != nil || res.More {
			res.More = true // also where it was stopped
			return res, purged, stopped, err
		}
	}
	return res, purged, false, nil
}
