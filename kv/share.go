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

// One-shot writes that wait for the writer lock at the same time share one transaction: one of them, the leader, waits
// for the lock on behalf of all, carries them out in the order in which they came, and commits once. What each would
// have copied, logged and waited for alone, they pay together.
//
// Nobody notices but by the clock. Each is told what it would have been told alone: one that fails is tried again in a
// transaction of its own, and so are all if one of them failed half-way. Their common instant is read after the last of
// them came.

// maxShared is how many writes share a transaction. More than crowd do best in two halves that take turns, one at work
// while the other one waits for the disk; fewer do best all together. In between lies the point where carrying them out
// takes about as long as the disk. Where the disk has their record before they are carried out, halves gain nothing,
// and cost a record and the copies of branches each: then as many as share a transaction do best together.
const (
	maxShared = 64
	crowd     = 32
)

// sharedBytes of log end a shared transaction early: large writes have little to share.
const sharedBytes = 256 << 10

// shot is a one-shot write that waits for its turn or for its answer. It is pooled together with its channel, and gets
// one message each time that it is queued, and each time that it waits for company.
type shot struct {
	family string
	call   func(*verbs) error // does the write; may be called again after a rollback
	row    operation          // what the write does, if call is nil: it may be carried out together with others
	err    error
	alone  bool          // what it does is not in the transaction of its group
	told   chan shotNews // capacity 1, so that telling never waits

	// Of a leader.
	group []*shot // itself first, then those who share with it and were not told yet
	size  int     // of the group when the queue was taken; 0: it has not been
	ahead bool    // its record is on its way before it is carried out
	inner *txn.Tx // what commits
	began uint64  // the commit before it
}

type shotNews uint8

const (
	shotDone   shotNews = iota // err is set
	shotLeads                  // it leads from now on
	shotAlone                  // nothing was done: it goes on alone
	shotStands                 // it was committed, but a callback ended the leader before it was known to be durable
)

var shotPool = sync.Pool{New: func() any { return &shot{told: make(chan shotNews, 1)} }}

// sharing is the queue of one-shot writes of a store. Its zero value is empty.
type sharing struct {
	mu      sync.Mutex // guards the fields below
	queue   []*shot
	leading bool  // someone takes the queue as soon as the writer lock is theirs
	waiting *shot // the leader, while it gathers
	away    int   // writes that were taken, and whose transaction has not ended
	ahead   bool  // the record of the last ones that shared was on its way before they were carried out
	told    int   // writes whose transaction has ended last, but for as many as have come since: they may be about to come back
}

// join queues a write behind the leader, or says that it leads.
func (q *sharing) join(s *shot) (leads bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.told = max(q.told-1, 0)
	if q.leading {
		if q.queue = append(q.queue, s); q.enough() {
			q.wake()
		}
		return false
	}
	q.leading = true
	return true
}

// gather makes a leader whose commit will wait for a sync wait while others are away, until enough have come to share
// with it: its record would have to wait for theirs anyway. Those who were told a moment ago are let run, since they
// are probably about to write again; nobody waits for what else they do.
func (q *sharing) gather(leader *shot) {
	q.mu.Lock()
	enough := q.enough()
	wait, missing := q.away > 0 && !enough, q.told > 0 && !enough
	if wait {
		q.waiting = leader
	}
	q.mu.Unlock()
	if wait {
		<-leader.told
	}
	if wait || missing {
		runtime.Gosched()
	}
}

// enough says that those who wait are nearly half of a crowd that is too large for one transaction: the other half is
// away. mu is held.
func (q *sharing) enough() bool {
	here := len(q.queue) + 1
	all := here + q.away + q.told
	together := crowd
	if q.ahead {
		together = maxShared
	}
	return here >= maxShared || all > together && here >= all*7/16
}

// wake lets a leader go on that has gathered. mu is held.
func (q *sharing) wake() {
	if q.waiting != nil {
		q.waiting.told <- shotLeads
		q.waiting = nil
	}
}

// back says that the leader's transaction has ended.
func (q *sharing) back(leader *shot) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.told = leader.size
	if leader.size > 1 {
		q.ahead = leader.ahead
	}
	if q.away -= leader.size; q.away == 0 {
		q.wake()
	}
}

// take gives the leader, who has the writer lock, those who share with it, and lays the lead down. If more are waiting
// than share a transaction, the first of the rest leads.
func (q *sharing) take(leader *shot) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.queue), maxShared-1)
	leader.group = append(append(leader.group, leader), q.queue[:n]...)
	leader.size = n + 1
	q.away += leader.size
	if q.leading = n < len(q.queue); q.leading {
		q.queue[n].told <- shotLeads
		n++
	}
	rest := copy(q.queue, q.queue[n:])
	clear(q.queue[rest:])
	q.queue = q.queue[:rest]
}

// write runs one call in a write transaction, alone or shared, and commits it unless the call failed. call puts its
// result where the caller looks for it; after a rollback it may be made again.
func (s *shots) write(call func(*verbs) error) error {
	me := shotPool.Get().(*shot)
	me.call = call
	return s.shoot(me)
}

// writeRow is write for what has no result, and no other condition than that its arguments are good.
func (s *shots) writeRow(op operation) error {
	me := shotPool.Get().(*shot)
	me.row = op
	return s.shoot(me)
}

func (s *shots) shoot(me *shot) (err error) {
	me.family = s.name
	news := shotLeads
	if !s.db.sharing.join(me) {
		news = <-me.told
	}
	if news == shotLeads {
		news = s.lead(me)
	}
	switch err = me.err; news {
	case shotAlone:
		err = s.writeAlone(me)
	case shotStands:
		err = s.awaitHead()
	}
	*me = shot{told: me.told, group: me.group[:0]}
	shotPool.Put(me)
	return err
}

// carryOut does the write.
func (s *shot) carryOut(v *verbs) error {
	if s.call == nil {
		return s.row.carryOut(v)
	}
	return s.call(v)
}

// writeAlone does a write in a transaction of its own, and commits it unless the write failed. It is tried again as long as there is a checkpoint to wait for that
// makes space for it.
func (s *shots) writeAlone(me *shot) error {
	return s.db.withSpace(context.Background(), func() error { return s.writeOnce(me) })
}

func (s *shots) writeOnce(me *shot) error {
	tx, err := s.use(context.Background(), nil)
	if err != nil {
		return err
	}
	defer s.done(tx)
	if err := me.carryOut(&tx.verbs); err != nil {
		return err
	}
	return tx.commit(nil)
}

// awaitHead returns when all that was committed before is visible, and as durable as was asked for. What keeps it from
// waiting, a failure or an end of the store, does not tell whether the commit will be found at the next open.
func (s *shots) awaitHead() error {
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

// lead carries out the leader's write together with those that came while it waited for the writer lock, and tells
// each. What it returns is the leader's own news.
func (s *shots) lead(me *shot) shotNews {
	defer s.dismiss(me)
	if s.db.durability == Sync {
		s.db.sharing.gather(me)
	}
	tx, err := s.use(context.Background(), func() { s.db.sharing.take(me) })
	if err != nil {
		me.err = err
		return shotDone
	}
	defer s.done(tx)
	me.inner, me.began = tx.inner, tx.inner.Seq()
	if len(me.group) == 1 {
		if me.err = me.carryOut(&tx.verbs); me.err == nil {
			me.err = tx.commit(nil)
		}
		if refused(me.err) {
			return shotAlone
		}
		return shotDone
	}
	done := 0
	if tx.foretell(me.group) != nil {
		allAlone(me.group)
	} else {
		me.ahead = tx.inner.LoggedAhead()
		done = tx.share(me.group)
	}
	if done > 0 {
		err = tx.commit(nil)
		if refused(err) { // There may be room for some of them.
			allAlone(me.group)
		}
	} else if unknown := tx.undone(errHalfWay); errors.Is(unknown, ErrCommitUnknown) {
		inDoubt(me.group)
		err = unknown
	}
	me.tell(shotDone, err)
	if me.alone {
		return shotAlone
	}
	me.err = err
	return shotDone
}

// errHalfWay is why none of the writes that shared a transaction was committed with it.
var errHalfWay = errors.New("kv: a write that shared the transaction failed half-way")

// tell answers those who share with the leader: what came of their transaction, or that they are not in it.
func (s *shot) tell(news shotNews, err error) {
	for _, one := range s.group {
		switch {
		case one == s:
		case one.alone:
			one.told <- shotAlone
		default:
			one.err = err
			one.told <- news
		}
	}
	s.group = s.group[:0]
}

// dismiss ends what lead began. The clock, OnExpire and events are the user's: they may panic, or end the leader's
// goroutine, and nobody may wait for it then.
func (s *shots) dismiss(me *shot) {
	if me.size == 0 {
		s.db.sharing.take(me)
	}
	news := shotAlone
	var err error
	switch {
	case me.inner == nil:
	case me.inner.Seq() != me.began:
		news = shotStands
	case errors.Is(me.inner.Err(), txn.ErrUnknown):
		news, err = shotDone, fromBelow(me.inner.Err())
		inDoubt(me.group)
	}
	me.tell(news, err)
	s.db.sharing.back(me)
}

// share carries out writes in their order, some of them together, and counts those that the transaction has. The others
// are marked: those that changed nothing and failed, and those for which it has grown too large; all of them, if one
// failed half-way.
func (tx *Tx) share(group []*shot) (done int) {
	v := &tx.verbs
	if rowsOf(group, v.name) && !tx.inner.LoggedAhead() {
		v.hold()
		defer release(v)
	}
	done = tx.shareRows(group)
	if done > 0 && tx.settle(v) != nil {
		allAlone(group)
		return 0
	}
	return done
}

// rowsOf says that all writes are operations on rows of one family.
func rowsOf(group []*shot, family string) bool {
	return !slices.ContainsFunc(group, func(one *shot) bool { return one.call != nil || one.family != family })
}

// shareRows is share, but that changes of indexes may be held back.
func (tx *Tx) shareRows(group []*shot) (done int) {
	apart := 0 // of the next ones, which failed together and changed nothing: one of them is to blame
	for rest := group; len(rest) > 0; {
		before := tx.inner.Bytes()
		left := sharedBytes - before
		if tx.inner.LoggedAhead() { // All of them are in the record, and were few enough.
			left = sharedBytes
		}
		if left < 0 {
			allAlone(rest)
			return done
		}
		n := 1
		if apart > 0 {
			apart--
		} else {
			n = alike(rest, left)
		}
		err := tx.carryOut(rest[:n])
		unchanged := err != nil && tx.err() == nil && !tx.inner.LoggedAhead() && tx.inner.Bytes() == before
		switch {
		case err == nil:
			done += n
		case unchanged && n > 1:
			apart = n
			continue
		case unchanged:
			rest[0].alone = true
		default:
			allAlone(group)
			return 0
		}
		rest = rest[n:]
	}
	return done
}

// allAlone marks writes that are to go on alone.
func allAlone(some []*shot) {
	for _, one := range some {
		one.alone = true
	}
}

// inDoubt marks writes that are not to be tried again, whatever was said before.
func inDoubt(all []*shot) {
	for _, one := range all {
		one.alone = false // The next Open may find it.
	}
}

// alike counts the writes at the head of a group that may be carried out together: operations on rows of one family. The last
// of them begins below a bound on their bytes.
func alike(group []*shot, bytes int64) (n int) {
	for n < min(len(group), ttl.ApplyRows) && bytes >= 0 && group[n].call == nil && group[n].family == group[0].family {
		bytes -= int64(len(group[n].row.first) + len(group[n].row.second))
		n++
	}
	return max(n, 1)
}

// carryOut does what several writes do that are alike, or one.
func (tx *Tx) carryOut(some []*shot) error {
	v := tx.family(some[0].family)
	if len(some) == 1 && v.held == nil {
		return some[0].carryOut(v)
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
