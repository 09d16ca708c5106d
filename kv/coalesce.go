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

// Concurrent one-shot writes that wait for the writer lock share one transaction. One of them, the
// leader, waits for the lock on behalf of all, applies them in the order in which they were queued,
// and commits once. So they share the copies of pages, the log record and the sync.
//
// Each write returns what it would return alone: one that fails is retried in a transaction of its
// own, and so are all if one of them failed half-way. Their common instant is read after the last of
// them was queued.

// maxGroup is the largest number of writes in a transaction. If more callers write all the time,
// halves of them take turns: one is applied while the other waits for the disk.
const maxGroup = 64

// maxGroupBytes of log end a shared transaction early: large writes gain little from sharing.
const maxGroupBytes = 256 << 10

// writeRequest is a one-shot write that waits for its turn or its result. It is pooled together with
// its channel. It gets one message for each time that it is queued, and for each time that it waits
// for followers.
type writeRequest struct {
	family string
	call   func(*verbs) error // the write; may be called again after a rollback
	// the write, if call is nil: an operation that may be applied together with others
	row      operation
	err      error
	separate bool             // it is not in the transaction of its group
	doneC    chan writeResult // capacity 1, so that a send never blocks

	// Of a leader.
	group []*writeRequest // itself first, then its followers without a result
	size  int             // of the group when it was taken from the queue; 0: not yet
	inner *txn.Tx         // the shared transaction
	began uint64          // the commit before it
}

type writeResult uint8

const (
	requestDone  writeResult = iota // err is set
	requestLeads                    // it is the leader now
	requestAlone                    // nothing was applied: it runs alone
	// it was committed, but a callback ended the leader before the commit was known to be durable
	requestCommitted
)

var requestPool = sync.Pool{New: func() any { return &writeRequest{doneC: make(chan writeResult, 1)} }}

// writeQueue is the queue of one-shot writes of a store. Its zero value is empty.
type writeQueue struct {
	mu       sync.Mutex // guards the fields below
	queue    []*writeRequest
	leading  bool          // a leader waits for the writer lock and will take the queue
	waiting  *writeRequest // the leader, while it waits for followers
	inFlight int           // writes that were taken, and whose transaction has not ended
	// writes of the last transaction, less those queued since: their callers may write again soon
	returning int
}

// join queues a write behind the leader, or makes it the leader.
func (q *writeQueue) join(s *writeRequest) (leads bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.returning = max(q.returning-1, 0)
	if q.leading {
		if q.queue = append(q.queue, s); q.groupComplete() {
			q.wake()
		}
		return false
	}
	q.leading = true
	return true
}

// waitForFollowers makes a leader whose commit waits for a sync wait while other writes are in flight,
// until enough writes are queued: its record would have to wait for theirs anyway. It yields the
// processor to callers whose writes just returned, which will probably write again.
func (q *writeQueue) waitForFollowers(leader *writeRequest) {
	q.mu.Lock()
	enough := q.groupComplete()
	wait, missing := q.inFlight > 0 && !enough, q.returning > 0 && !enough
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

// groupComplete says that the queued writes are nearly half of a group that is too large for one
// transaction: the other half is in flight. mu is held.
func (q *writeQueue) groupComplete() bool {
	here := len(q.queue) + 1
	all := here + q.inFlight + q.returning
	return here >= maxGroup || all > maxGroup && here >= all*7/16
}

// wake wakes a leader that waits for followers. mu is held.
func (q *writeQueue) wake() {
	if q.waiting != nil {
		q.waiting.doneC <- requestLeads
		q.waiting = nil
	}
}

// transactionEnded records the end of the leader's transaction.
func (q *writeQueue) transactionEnded(leader *writeRequest) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.returning = leader.size
	if q.inFlight -= leader.size; q.inFlight == 0 {
		q.wake()
	}
}

// takeGroup moves queued writes to the group of the leader, which has the writer lock and resigns
// as leader. If more writes are queued than fit, the first of the rest becomes the leader.
func (q *writeQueue) takeGroup(leader *writeRequest) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, bytes := 0, len(leader.row.first)+len(leader.row.second)
	for n < min(len(q.queue), maxGroup-1) && bytes < maxGroupBytes {
		bytes += len(q.queue[n].row.first) + len(q.queue[n].row.second)
		n++
	}
	leader.group = append(append(leader.group, leader), q.queue[:n]...)
	leader.size = n + 1
	q.inFlight += leader.size
	if q.leading = n < len(q.queue); q.leading {
		q.queue[n].doneC <- requestLeads
		n++
	}
	rest := copy(q.queue, q.queue[n:])
	clear(q.queue[rest:])
	q.queue = q.queue[:rest]
}

// write runs call in a write transaction, alone or shared, and commits it unless call failed. call
// stores its result itself, and may be called again after a rollback.
func (s *oneShot) write(call func(*verbs) error) error {
	me := requestPool.Get().(*writeRequest)
	me.call = call
	return s.submit(me)
}

// writeRow is write for an operation, which has no result and fails only for invalid arguments.
func (s *oneShot) writeRow(op operation) error {
	me := requestPool.Get().(*writeRequest)
	me.row = op
	return s.submit(me)
}

func (s *oneShot) submit(me *writeRequest) (err error) {
	me.family = s.name
	result := requestLeads
	if !s.db.writes.join(me) {
		result = <-me.doneC
	}
	if result == requestLeads {
		result = s.lead(me)
	}
	switch err = me.err; result {
	case requestAlone:
		err = s.db.withSpace(context.Background(), func() error { return s.writeOnce(me) })
	case requestCommitted:
		err = s.waitHeadVisible()
	}
	*me = writeRequest{doneC: me.doneC, group: me.group[:0]}
	requestPool.Put(me)
	return err
}

func (s *writeRequest) apply(v *verbs) error {
	if s.call == nil {
		return s.row.apply(v)
	}
	return s.call(v)
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

// waitHeadVisible waits until all commits so far are visible and as durable as demanded. If it
// cannot wait, because of a failure or the end of the store, only the next Open decides whether the
// commit is found.
func (s *oneShot) waitHeadVisible() error {
	defer s.db.notifyShutdown()
	tx, err := s.db.store.Begin(context.Background(), true)
	if err == nil {
		err = tx.Commit(txn.NoSync) // It has no changes, and waits for the commits before it.
	}
	if err != nil {
		return &failure{ErrCommitUnknown, fromBelow(err)}
	}
	return nil
}

// lead applies the leader's write together with those that were queued while it waited for the
// writer lock, and completes them. It returns the result of the leader's own write.
func (s *oneShot) lead(me *writeRequest) writeResult {
	defer s.handOff(me)
	if s.db.durability == Sync {
		s.db.writes.waitForFollowers(me)
	}
	tx, err := s.beginWrite(context.Background(), func() { s.db.writes.takeGroup(me) })
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
	defer tx.releaseBuffers()
	changes := changePool.Get().(*changeBuffer)
	defer changes.release(len(me.group))
	if tx.applyGroup(me.group, changes[:]) > 0 {
		if err = tx.commit(nil); err != nil && !errors.Is(err, ErrCommitUnknown) {
			setSeparate(me.group, true)
		}
	}
	me.complete(requestDone, err)
	if me.separate {
		return requestAlone
	}
	me.err = err
	return requestDone
}

// complete sends each follower the result of the shared transaction, or requestAlone if its write is
// not in it.
func (s *writeRequest) complete(result writeResult, err error) {
	for _, one := range s.group {
		switch {
		case one == s:
		case one.separate:
			one.doneC <- requestAlone
		default:
			one.err = err
			one.doneC <- result
		}
	}
	s.group = s.group[:0]
}

// handOff ends lead. The clock, OnExpire and events are callbacks: they may panic, or end the
// leader's goroutine, and then no follower may wait for it.
func (s *oneShot) handOff(me *writeRequest) {
	if me.size == 0 {
		s.db.writes.takeGroup(me)
	}
	result := requestAlone
	var err error
	switch {
	case me.inner == nil:
	case me.inner.Seq() != me.began:
		result = requestCommitted
	case errors.Is(me.inner.Err(), txn.ErrUnknown):
		result, err = requestDone, fromBelow(me.inner.Err())
		setSeparate(me.group, false) // The next Open may find these writes, whatever was marked before.
	}
	me.complete(result, err)
	s.db.writes.transactionEnded(me)
}

// applyGroup applies the writes, and returns the number that the transaction has. It marks the others
// as separate: those that failed without a change, those for which the transaction is too large, and
// all of them if one failed half-way.
//
// It applies operations on rows of one family together, unless one of them is invalid. The commit
// applies the last ones; changes is memory for them.
func (tx *Tx) applyGroup(group []*writeRequest, changes []ttl.Change) (done int) {
	inner := tx.inner // not of the Tx: OnExpireTx may have been ended by Shutdown
	before := inner.Bytes()
	unchanged := func() bool { return tx.err() == nil && inner.Bytes() == before }
	if rowsOf(group, tx.verbs.name) {
		tx.verbs.bufferIndexes()
		switch err := tx.verbs.applyAll(group, changes); {
		case err == nil:
			return len(group)
		case !unchanged():
			setSeparate(group, true)
			return 0
		}
		tx.releaseBuffers()
	}
	for i, one := range group {
		if before = inner.Bytes(); before > maxGroupBytes {
			setSeparate(group[i:], true)
			return done
		}
		switch err := one.apply(tx.family(one.family)); {
		case err == nil:
			done++
		case unchanged():
			one.separate = true
		default:
			setSeparate(group, true)
			return 0
		}
	}
	return done
}

// rowsOf says that all writes are operations on rows of one family.
func rowsOf(group []*writeRequest, family string) bool {
	return !slices.ContainsFunc(group,
		func(one *writeRequest) bool { return one.call != nil || one.family != family })
}

// setSeparate marks writes to be run alone, or not.
func setSeparate(some []*writeRequest, separate bool) {
	for _, one := range some {
		one.separate = separate
	}
}
