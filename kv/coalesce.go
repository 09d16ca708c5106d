package kv

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"

	"github.com/ebbkv/ebb/ttl"
	"github.com/ebbkv/ebb/txn"
)

// One-shot writes that wait for the writer lock at the same time share one transaction: one of
// them, the leader, waits for the lock on behalf of all, carries them out in the order in which
// they came, and commits once. What each would have copied, logged and waited for alone, they pay
// together.
//
// Nobody notices but by the clock. Each is told what it would have been told alone: one that fails
// is tried again in a transaction of its own, and so are all if one of them failed half-way. Their
// common instant is read after the last of them came.

// maxGroup is how many writes share a transaction. More than crowd do best in two halves that take
// turns, one at work while the other one waits for the disk; fewer do best all together. In between
// lies the point where carrying them out takes about as long as the disk. Where the disk has their
// record before they are carried out, halves gain nothing, and cost a record and the copies of
// branches each: then as many as share a transaction do best together.
const (
	maxGroup   = 64
	smallGroup = 32
)

// maxGroupBytes of log end a shared transaction early: large writes have little to share.
const maxGroupBytes = 256 << 10

// writeRequest is a one-shot write that waits for its turn or for its answer. It is pooled together
// with its channel, and gets one message each time that it is queued, and each time that it waits
// for company.
type writeRequest struct {
	family string
	call   func(*verbs) error // does the write; may be called again after a rollback
	// what the write does, if call is nil: it may be carried out together with others
	row      operation
	err      error
	separate bool             // what it does is not in the transaction of its group
	doneC    chan writeResult // capacity 1, so that telling never waits

	// Of a leader.
	group     []*writeRequest // itself first, then those who share with it and were not told yet
	size      int             // of the group when the queue was taken; 0: it has not been
	submitted bool            // its record is on its way before it is carried out
	inner     *txn.Tx         // what commits
	began     uint64          // the commit before it
}

type writeResult uint8

const (
	requestDone  writeResult = iota // err is set
	requestLeads                    // it leads from now on
	requestAlone                    // nothing was done: it goes on alone
	// it was committed, but a callback ended the leader before it was known to be durable
	requestCommitted
)

var requestPool = sync.Pool{New: func() any { return &writeRequest{doneC: make(chan writeResult, 1)} }}

// writeQueue is the queue of one-shot writes of a store. Its zero value is empty.
type writeQueue struct {
	mu      sync.Mutex // guards the fields below
	queue   []*writeRequest
	leading bool          // someone takes the queue as soon as the writer lock is theirs
	waiting *writeRequest // the leader, while it gathers
	away    int           // writes that were taken, and whose transaction has not ended
	ahead   bool          // the record of the last ones that shared was on its way before they were carried out
	// writes whose transaction has ended last, but for as many as have come since: they may be
	// about to come back
	told int
}

// join queues a write behind the leader, or says that it leads.
func (q *writeQueue) join(s *writeRequest) (leads bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.told = max(q.told-1, 0)
	if q.leading {
		if q.queue = append(q.queue, s); q.groupComplete() {
			q.wake()
		}
		return false
	}
	q.leading = true
	return true
}

// waitForFollowers makes a leader whose commit will wait for a sync wait while others are away,
// until enough have come to share with it: its record would have to wait for theirs anyway. Those
// who were told a moment ago are let run, since they are probably about to write again; nobody
// waits for what else they do.
func (q *writeQueue) waitForFollowers(leader *writeRequest) {
	q.mu.Lock()
	enough := q.groupComplete()
	wait, missing := q.away > 0 && !enough, q.told > 0 && !enough
	if wait {
		q.waiting = leader
	}
	q.mu.Unlock()
	if wait {
		<-leader.doneC
	}
	if wait || missing {
		runtime.Gosched()
	}
}

// groupComplete says that those who wait are nearly half of a crowd that is too large for one
// transaction: the other half is away. mu is held.
func (q *writeQueue) groupComplete() bool {
	here := len(q.queue) + 1
	all := here + q.away + q.told
	together := smallGroup
	if q.ahead {
		together = maxGroup
	}
	return here >= maxGroup || all > together && here >= all*7/16
}

// wake lets a leader go on that has gathered. mu is held.
func (q *writeQueue) wake() {
	if q.waiting != nil {
		q.waiting.doneC <- requestLeads
		q.waiting = nil
	}
}

// restoreQueue says that the leader's transaction has ended.
func (q *writeQueue) restoreQueue(leader *writeRequest) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.told = leader.size
	if leader.size > 1 {
		q.ahead = leader.submitted
	}
	if q.away -= leader.size; q.away == 0 {
		q.wake()
	}
}

// takeGroup gives the leader, who has the writer lock, those who share with it, and lays the lead
// down. If more are waiting than share a transaction, the first of the rest leads.
func (q *writeQueue) takeGroup(leader *writeRequest) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.queue), maxGroup-1)
	leader.group = append(append(leader.group, leader), q.queue[:n]...)
	leader.size = n + 1
	q.away += leader.size
	if q.leading = n < len(q.queue); q.leading {
		q.queue[n].doneC <- requestLeads
		n++
	}
	rest := copy(q.queue, q.queue[n:])
	clear(q.queue[rest:])
	q.queue = q.queue[:rest]
}

// write runs one call in a write transaction, alone or shared, and commits it unless the call
// failed. call puts its result where the caller looks for it; after a rollback it may be made
// again.
func (s *oneShot) write(call func(*verbs) error) error {
	me := requestPool.Get().(*writeRequest)
	me.call = call
	return s.submit(me)
}

// writeRow is write for what has no result, and no other condition than that its arguments are
// good.
func (s *oneShot) writeRow(op operation) error {
	me := requestPool.Get().(*writeRequest)
	me.row = op
	return s.submit(me)
}

func (s *oneShot) submit(me *writeRequest) (err error) {
	me.family = s.name
	news := requestLeads
	if !s.db.sharing.join(me) {
		news = <-me.doneC
	}
	if news == requestLeads {
		news = s.lead(me)
	}
	switch err = me.err; news {
	case requestAlone:
		err = s.writeSeparately(me)
	case requestCommitted:
		err = s.waitHeadVisible()
	}
	*me = writeRequest{doneC: me.doneC, group: me.group[:0]}
	requestPool.Put(me)
	return err
}

// apply does the write.
func (s *writeRequest) apply(v *verbs) error {
	if s.call == nil {
		return s.row.apply(v)
	}
	return s.call(v)
}

// writeSeparately does a write in a transaction of its own, and commits it unless the write failed.
// It is tried again as long as there is a checkpoint to wait for that makes space for it.
func (s *oneShot) writeSeparately(me *writeRequest) error {
	return s.db.withSpace(context.Background(), func() error { return s.writeOnce(me) })
}

func (s *oneShot) writeOnce(me *writeRequest) error {
	tx, err := s.beginWrite(context.Background(), nil)
	if err != nil {
		return err
	}
	defer s.done(tx)
	if err := me.apply(&tx.verbs); err != nil {
		return err
	}
	return tx.commit(nil)
}

// waitHeadVisible returns when all that was committed before is visible, and as durable as was
// asked for. What keeps it from waiting, a failure or an end of the store, does not tell whether
// the commit will be found at the next open.
func (s *oneShot) waitHeadVisible() error {
	defer s.db.leave()
	tx, err := s.db.store.Begin(context.Background(), true)
	if err == nil {
		err = tx.Commit(txn.NoSync) // It has no changes, and waits for those before it.
	}
	if err != nil {
		return &failure{ErrCommitUnknown, fromBelow(err)}
	}
	return nil
}

// lead carries out the leader's write together with those that came while it waited for the writer
// lock, and tells each. What it returns is the leader's own news.
func (s *oneShot) lead(me *writeRequest) writeResult {
	defer s.handOff(me)
	if s.db.durability == Sync {
		s.db.sharing.waitForFollowers(me)
	}
	tx, err := s.beginWrite(context.Background(), func() { s.db.sharing.takeGroup(me) })
	if err != nil {
		me.err = err
		return requestDone
	}
	defer s.done(tx)
	me.inner, me.began = tx.inner, tx.inner.Seq()
	if len(me.group) == 1 {
		if me.err = me.apply(&tx.verbs); me.err == nil {
			me.err = tx.commit(nil)
		}
		if refused(me.err) {
			return requestAlone
		}
		return requestDone
	}
	done := 0
	if tx.encodeRedo(me.group) != nil {
		runSeparately(me.group)
	} else {
		me.submitted = tx.inner.LogSubmitted()
		done = tx.applyGroup(me.group)
	}
	if done > 0 {
		err = tx.commit(nil)
		if refused(err) { // There may be room for some of them.
			runSeparately(me.group)
		}
	} else if unknown := tx.revokeErr(errPartialGroup); errors.Is(unknown, ErrCommitUnknown) {
		markUnknown(me.group)
		err = unknown
	}
	me.complete(requestDone, err)
	if me.separate {
		return requestAlone
	}
	me.err = err
	return requestDone
}

// errPartialGroup is why none of the writes that shared a transaction was committed with it.
var errPartialGroup = errors.New("kv: a write that shared the transaction failed half-way")

// complete answers those who share with the leader: what came of their transaction, or that they
// are not in it.
func (s *writeRequest) complete(news writeResult, err error) {
	for _, one := range s.group {
		switch {
		case one == s:
		case one.separate:
			one.doneC <- requestAlone
		default:
			one.err = err
			one.doneC <- news
		}
	}
	s.group = s.group[:0]
}

// handOff ends what lead began. The clock, OnExpire and events are the user's: they may panic, or
// end the leader's goroutine, and nobody may wait for it then.
func (s *oneShot) handOff(me *writeRequest) {
	if me.size == 0 {
		s.db.sharing.takeGroup(me)
	}
	news := requestAlone
	var err error
	switch {
	case me.inner == nil:
	case me.inner.Seq() != me.began:
		news = requestCommitted
	case errors.Is(me.inner.Err(), txn.ErrUnknown):
		news, err = requestDone, fromBelow(me.inner.Err())
		markUnknown(me.group)
	}
	me.complete(news, err)
	s.db.sharing.restoreQueue(me)
}

// applyGroup carries out writes in their order, some of them together, and counts those that the
// transaction has. The others are marked: those that changed nothing and failed, and those for
// which it has grown too large; all of them, if one failed half-way.
func (tx *Tx) applyGroup(group []*writeRequest) (done int) {
	v := &tx.verbs
	if rowsOf(group, v.name) && !tx.inner.LogSubmitted() {
		v.bufferIndexes()
		defer releaseBuffers(v)
	}
	done = tx.applyGroupRows(group)
	if done > 0 && tx.flushIndexes(v) != nil {
		runSeparately(group)
		return 0
	}
	return done
}

// rowsOf says that all writes are operations on rows of one family.
func rowsOf(group []*writeRequest, family string) bool {
	return !slices.ContainsFunc(
		group,
		func(one *writeRequest) bool { return one.call != nil || one.family != family },
	)
}

// applyGroupRows is share, but that changes of indexes may be held back.
func (tx *Tx) applyGroupRows(group []*writeRequest) (done int) {
	apart := 0 // of the next ones, which failed together and changed nothing: one of them is to blame
	for rest := group; len(rest) > 0; {
		before := tx.inner.Bytes()
		left := maxGroupBytes - before
		if tx.inner.LogSubmitted() { // All of them are in the record, and were few enough.
			left = maxGroupBytes
		}
		if left < 0 {
			runSeparately(rest)
			return done
		}
		n := 1
		if apart > 0 {
			apart--
		} else {
			n = sameKind(rest, left)
		}
		err := tx.applyRequests(rest[:n])
		unchanged := err != nil && tx.err() == nil && !tx.inner.LogSubmitted() && tx.inner.Bytes() == before
		switch {
		case err == nil:
			done += n
		case unchanged && n > 1:
			apart = n
			continue
		case unchanged:
			rest[0].separate = true
		default:
			runSeparately(group)
			return 0
		}
		rest = rest[n:]
	}
	return done
}

// runSeparately marks writes that are to go on alone.
func runSeparately(some []*writeRequest) {
	for _, one := range some {
		one.separate = true
	}
}

// markUnknown marks writes that are not to be tried again, whatever was said before.
func markUnknown(all []*writeRequest) {
	for _, one := range all {
		one.separate = false // The next Open may find it.
	}
}

// sameKind counts the writes at the head of a group that may be carried out together: operations on
// rows of one family. The last of them begins below a bound on their bytes.
func sameKind(group []*writeRequest, bytes int64) (n int) {
	for n < min(len(group), ttl.ApplyRows) && bytes >= 0 && group[n].call == nil && group[n].family == group[0].family {
		bytes -= int64(len(group[n].row.first) + len(group[n].row.second))
		n++
	}
	return max(n, 1)
}

// applyRequests does what several writes do that are alike, or one.
func (tx *Tx) applyRequests(some []*writeRequest) error {
	v := tx.family(some[0].family)
	if len(some) == 1 && v.indexBuffer == nil {
		return some[0].apply(v)
	}
	var ops [ttl.ApplyRows]operation
	for i, one := range some {
		ops[i] = one.row
	}
	return v.applyAll(ops[:len(some)])
}

// family gives the verbs of a family that shares the transaction.
func (tx *Tx) family(name string) *verbs {
	if name == tx.verbs.name {
		return &tx.verbs
	}
	return &tx.CF(name).verbs
}
