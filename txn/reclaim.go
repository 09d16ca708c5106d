package txn

import (
	"math"
	"slices"
	"sort"
	"sync/atomic"

	"github.com/ebbkv/ebb/pager"
)

// deferredFree is what newer states do not need, and an older one may.
type deferredFree struct {
	id              pager.Pgid  // first page; 0: the detached frames of afterVersion
	n               uint32      // pages; 0: only the frame of page id, which stays in use
	afterCheckpoint pager.Epoch // first checkpoint that does not reach them; 0: none ever did
	birth           uint64      // first version that reaches them; 0: from before the session
	afterVersion    uint64      // first version that does not; or mergedVersion
}

// mergedVersion stands for the version that the checkpoint afterCheckpoint will publish. It is the
// afterVersion of the base of a delta: a reader of the delta reads the base, until that checkpoint
// has written both as one page.
const mergedVersion = math.MaxUint64

// An obstacle is what an entry waits for.
type obstacle int

const (
	unmerged   obstacle = iota // the checkpoint that merges the delta is not durable
	invisible                  // readers may still begin on a version that reaches it
	uncaptured                 // the newest captured checkpoint reaches it
	pinned                     // a snapshot or a backup reads it
	noObstacle
)

// A reclaimer holds what versions no longer need, and frees it as soon as no snapshot reads it and
// no state that recovery could start from reaches it: docs/reclamation.md. The writer lock guards
// it.
//
//	(1) Between transactions, each page of the file is either used by the newest version, free in
//	    the pager, or in one entry.
//	(2) A page is freed only when no held version, of a snapshot or a backup, is in [birth,
//	    afterVersion), every later reader begins at afterVersion or later, and afterCheckpoint is
//	    durable. The pager may give its
//	    number to a page in memory as soon as afterCheckpoint is captured: see pager.OfferReusable.
//	(3) An obstacle that is gone does not return: the visible version and the checkpoints only grow,
//	    and a new snapshot is of the visible version or a later one. A backup begins on the newest
//	    captured checkpoint, whose pages are uncaptured.
//	(4) Each entry waits in the list of its first obstacle, in the order unmerged, invisible, pinned,
//	    uncaptured. By (3) it only moves forward.
//	(5) In each list of waiting, an entry loses the obstacle no later than the entries behind it, so
//	    only the oldest is looked at. A merged base may follow entries of later versions, and waits
//	    for them.
//	(6) pinnedPages is the number of pages of the pinned entries.
type reclaimer struct {
	*stickyFailure
	pg      *pager.Pager
	visible *atomic.Pointer[version]
	readers *snapshots
	backups *snapshots // they read pages, and no frames

	waiting     [pinned]deferredFrees     // by obstacle
	pins        map[uint64][]deferredFree // pinned entries, by the oldest snapshot that reads them, or backup
	pinnedPages int64
	detached    map[uint64]pager.Frames // by afterVersion
	// replacedPages are pages of the captured checkpoint that commits have freed since.
	replacedPages uint64

	durable  pager.Epoch // newest checkpoint from which alone recovery can start
	mergedAt uint64      // version that it published
	seen     uint64      // visible version as of the last look
	held     []uint64    // versions held by snapshots as of the last look, in order
	backedUp []uint64    // versions held by backups, likewise

	framesAvailable broadcast // sent when detached frames were freed
}

// add defers the free of pages that the version frees, where next is the number of the next
// checkpoint.
func (q *reclaimer) add(f *freedPages, version uint64, next pager.Epoch) {
	if f.epoch > q.durable && f.epoch <= q.pg.Pool.Captured() {
		q.replacedPages += uint64(f.n)
	}
	d := deferredFree{id: f.id, n: f.n, birth: f.birth, afterVersion: version, afterCheckpoint: next}
	if f.deltaBase {
		d.afterVersion = mergedVersion
		q.waiting[unmerged].push(d)
		return
	}
	if f.epoch == next && !f.logReferenced { // no record needs them in the file either
		d.afterCheckpoint = 0
	}
	q.waiting[invisible].push(d)
}

// detach defers the free of frames that no page of the version or a later one has.
func (q *reclaimer) detach(frames pager.Frames, version uint64) {
	if len(frames) > 0 {
		q.detached[version] = frames
		q.waiting[invisible].push(deferredFree{afterVersion: version})
	}
}

// captured defers the free of the free-map pages that the checkpoint, just captured, has replaced.
// An epoch that ends without a checkpoint, as with a bulk load that fails, leaves its entries to a
// later one.
func (q *reclaimer) captured(freed []pager.Ref, checkpoint pager.Epoch) {
	q.replacedPages = 0
	for _, ref := range freed {
		q.waiting[uncaptured].push(deferredFree{id: ref.Pgid, n: 1, afterCheckpoint: checkpoint})
	}
}

// installed follows the end of a checkpoint, with which recovery starts from now on, and which
// published the version. Later readers need neither the frames of its pages nor their deltas.
func (q *reclaimer) installed(c *checkpointState, version uint64) {
	q.durable, q.mergedAt = c.meta.Epoch, version
	for _, id := range c.framed {
		q.waiting[invisible].push(deferredFree{id: id, birth: q.pg.Pool.Owner(id), afterVersion: version})
	}
	q.detach(c.pages.Deltas, version)
	q.pg.Alloc.AcceptReusable()
}

// look lists the held snapshots and backups. visible is loaded first: a later snapshot is of that
// version or a newer one.
func (q *reclaimer) look() {
	q.seen = q.visible.Load().serial
	q.held = q.readers.held(q.held[:0])
	q.backedUp = q.backups.held(q.backedUp[:0])
}

// oldestRead is the oldest version that any snapshot reads, now or later.
func (q *reclaimer) oldestRead() uint64 {
	if q.look(); len(q.held) > 0 {
		return min(q.seen, q.held[0])
	}
	return q.seen
}

// ofBackup marks the holder of pinned entries as a backup.
const ofBackup = 1 << 63

// reads returns the oldest of these versions, in order, that reaches the entry.
func (f *deferredFree) reads(versions []uint64) (version uint64, found bool) {
	i := sort.Search(len(versions), func(i int) bool { return versions[i] >= f.birth })
	if i == len(versions) || versions[i] >= f.afterVersion {
		return 0, false
	}
	return versions[i], true
}

// obstacle is the first obstacle of an entry, as of the last look; for pinned with the holder. It
// decides all frees: see (2). A backup reads the pages of a durable checkpoint in the file.
func (q *reclaimer) obstacle(f *deferredFree) (o obstacle, holder uint64) {
	if f.afterVersion == mergedVersion {
		if f.afterCheckpoint > q.durable {
			return unmerged, 0
		}
		f.afterVersion = q.mergedAt
	}
	if f.afterVersion > q.seen {
		return invisible, 0
	}
	if v, found := f.reads(q.held); found {
		return pinned, v
	}
	if f.n > 0 && len(q.backedUp) > 0 {
		if v, found := f.reads(q.backedUp); found {
			return pinned, v | ofBackup
		}
	}
	if f.afterCheckpoint > q.pg.Pool.Captured() {
		return uncaptured, 0
	}
	return noObstacle, 0
}

// reclaimStep bounds the entries that one hold of the writer lock reclaims: each transaction
// reclaims so many before it begins, and none waits long. A commit that frees more reclaims as many,
// or the entries would grow without bound.
const reclaimStep = 2048

// reclaimAll is no bound.
const reclaimAll = math.MaxInt

// reclaim frees up to limit entries whose obstacles are gone, or moves them on. more says that there
// may be others. An error fails the store.
func (q *reclaimer) reclaim(limit int) (more bool, err error) {
	if q.waiting[unmerged].len()+q.waiting[invisible].len()+len(q.pins) > 0 {
		q.look()
	}
	limit, err = q.drain(uncaptured, limit)
	if err == nil {
		limit, err = q.unpin(limit)
	}
	for o := invisible; o >= unmerged && err == nil; o-- {
		limit, err = q.drain(o, limit)
	}
	if err != nil {
		return false, q.fail(err)
	}
	return limit == 0, nil
}

// drain is reclaim of the entries that had one obstacle, in order. It returns the rest of the limit.
func (q *reclaimer) drain(o obstacle, limit int) (int, error) {
	for list := &q.waiting[o]; limit > 0 && list.len() > 0; limit-- {
		now, holder := q.obstacle(list.oldest())
		if now == o {
			break
		}
		if err := q.place(list.shift(), now, holder); err != nil {
			return 0, err
		}
	}
	return limit, nil
}

// unpin is drain of the entries whose snapshot has ended.
func (q *reclaimer) unpin(limit int) (int, error) {
	for holder, entries := range q.pins {
		holders := q.held
		if holder&ofBackup != 0 {
			holders = q.backedUp
		}
		if _, held := slices.BinarySearch(holders, holder&^ofBackup); held {
			continue
		}
		n := min(limit, len(entries))
		limit -= n
		if q.pins[holder] = entries[n:]; n == len(entries) {
			delete(q.pins, holder)
		}
		for _, f := range entries[:n] {
			q.pinnedPages -= int64(f.n)
			now, holder := q.obstacle(&f)
			if err := q.place(f, now, holder); err != nil {
				return 0, err
			}
		}
	}
	return limit, nil
}

// place adds an entry to the list of its obstacle, or frees it.
func (q *reclaimer) place(f deferredFree, o obstacle, holder uint64) error {
	switch o {
	case noObstacle:
		return q.free(f)
	case pinned:
		q.pins[holder] = append(q.pins[holder], f)
		q.pinnedPages += int64(f.n)
	default:
		q.waiting[o].push(f)
	}
	return nil
}

// free frees an entry without obstacles.
func (q *reclaimer) free(f deferredFree) error {
	switch {
	case f.id == 0:
		q.pg.Pool.ReturnFrames(q.detached[f.afterVersion])
		delete(q.detached, f.afterVersion)
		q.framesAvailable.send()
	case f.n == 0:
		q.pg.Pool.ReleaseFrame(f.id, f.birth)
	case f.afterCheckpoint == 0:
		return q.pg.Unused(f.id, uint64(f.n))
	case f.afterCheckpoint <= q.durable:
		return q.pg.Release(f.id, uint64(f.n))
	default:
		return q.pg.OfferReusable(f.id, uint64(f.n))
	}
	return nil
}

// reclaimInSteps frees what versions up to v have freed, except for what snapshots hold, in steps:
// between two steps the writer lock is free. A checkpoint ends with it, since checkpointer.due counts
// frames in use: frames of pages that are in the file would start another checkpoint.
func (k *checkpointer) reclaimInSteps(v *version) error {
	if err := k.s.waitVisible(v); err != nil { // before that none of it can be freed
		return err
	}
	step := func() (more bool, err error) {
		_ = k.s.lockWriter(nil)
		defer k.s.unlockWriter()
		return k.s.reclaimer.reclaim(reclaimStep)
	}
	for more := true; more; {
		var err error
		if more, err = step(); err != nil {
			return err
		}
	}
	return nil
}

// heldSnapshots lists the held versions in order. The list is valid until the next look.
func (q *reclaimer) heldSnapshots() []uint64 {
	q.look()
	return q.held
}

// reuseFraction bounds the part of the frames that hold early reused pages of a transaction: it
// cannot spill these before the running checkpoint ends.
const reuseFraction = 8

// mostReusable bounds the pages that are reused early, with those of the transaction that begins:
// no more than commits have replaced of the running checkpoint. A crash before its end leaves the
// early ones in use and the replaced ones free, so that the next open can replay the log without
// more space from the disk, which may be full.
func (q *reclaimer) mostReusable(cacheBytes int64) uint64 {
	share := uint64(cacheBytes / reuseFraction / int64(q.pg.PageSize()))
	return min(q.replacedPages, q.pg.Alloc.ReusableInUse()+share)
}
