package server

import (
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/ebbkv/ebb/cmd/ebbd/keyspace"
	"github.com/ebbkv/ebb/kv"
)

const (
	// A turn takes at most this many commands and bytes of arguments from its queue.
	turnCommands = 4096
	turnBytes    = 16 << 20
	// Between two turns expired rows are deleted for purgeTime, purgeStep at a time: a write waits for
	// that. Each row may be on a page of its own, so their number is no bound.
	purgeTime = time.Millisecond
	purgeStep = 64
)

// unit is the part of a pipeline that one connection gives to a turn, or a function of the server.
type unit struct {
	x        execution
	commands [][][]byte
	bytes    int
	ran      int  // commands that have run: all, unless one of them blocks or fails the transaction
	failed   bool // the last of them has failed the transaction

	internal func(tx *kv.Tx) error

	// What the connection was before the unit: see restore.
	mark    int // length of the replies
	version int // of the protocol
	before  sessionState
	closing bool

	err  error
	done chan struct{}
}

// executor runs turns, one after the other.
type executor struct {
	s     *Server
	queue chan *unit
	// urgent says that expired or dead rows were left over.
	urgent bool
	// Of the present turn: messages that go out after its commit, keys that may have become ready
	// for waiters, waiters that it has served.
	messages []message
	ready    []watchedKey
	served   []*waiter
	// stopped is closed when the last turn has ended.
	stopped chan struct{}
}

func newExecutor(s *Server) *executor {
	return &executor{s: s, queue: make(chan *unit, 1024), stopped: make(chan struct{})}
}

// submit runs commands of a connection in a turn and waits for its commit. It returns the number of
// those that have run, and what the last one has become if it blocks.
func (e *executor) submit(c *conn, commands [][][]byte) (ran int, w *waiter) {
	e.enqueue(c, commands)
	<-c.unit.done
	return c.unit.ran, c.unit.x.waiter
}

// enqueue has commands of a connection run in a turn.
func (e *executor) enqueue(c *conn, commands [][][]byte) {
	u := &c.unit
	u.commands, u.bytes, u.err = commands, 0, nil
	for _, args := range commands {
		u.bytes += argBytes(args)
	}
	u.keep()
	e.queue <- u
}

// keep notes what the connection is, for restore.
func (u *unit) keep() {
	c := u.x.c
	u.mark, u.version, u.before, u.closing = c.w.Len(), c.w.Version, c.sessionState, c.closing
}

// do runs fn in a turn.
func (e *executor) do(fn func(tx *kv.Tx) error) error {
	u := &unit{internal: fn, done: make(chan struct{}, 1)}
	e.queue <- u
	<-u.done
	return u.err
}

// run is the goroutine of the executor. It ends when the queue is closed and empty.
func (e *executor) run(tick <-chan time.Time) {
	defer close(e.stopped)
	for {
		if e.urgent {
			select {
			case u, ok := <-e.queue:
				if !ok {
					return
				}
				e.turn(u)
			default:
			}
			e.maintain()
			continue
		}
		select {
		case u, ok := <-e.queue:
			if !ok {
				return
			}
			e.turn(u)
		case <-tick:
			e.maintain()
		}
	}
}

// turn runs the first unit and what else is queued in one transaction, and gives the replies back
// when it has been committed.
func (e *executor) turn(first *unit) {
	// Goroutines of connections that commands have woken run first: one sync is enough for all.
	runtime.Gosched()
	units := []*unit{first}
	for commands, bytes := len(first.commands), first.bytes; commands < turnCommands && bytes < turnBytes; {
		select {
		case u, ok := <-e.queue:
			if !ok {
				e.commit(units)
				return
			}
			units = append(units, u)
			commands += len(u.commands)
			bytes += u.bytes
			continue
		default:
		}
		break
	}
	e.commit(units)
}

// errHalfway rolls back a turn in which a command without a savepoint failed after its first write.
var errHalfway = errors.New("a command failed half-way")

// commit runs units in one transaction, and gives the replies back. Where that has no space, each
// unit is one of its own, and then parts of its commands: what needs no space, such as DEL, does not
// fail with what does.
func (e *executor) commit(units []*unit) {
	err := e.transact(units)
	if errors.Is(err, kv.ErrNoSpace) && (len(units) > 1 || len(units[0].commands) > 1) {
		restore(units)
		for i, u := range units {
			if len(units) > 1 {
				e.commit(units[i : i+1])
				continue
			}
			e.commitParts(u)
			u.deliver()
		}
		return
	}
	e.note(err)
	for _, u := range units {
		u.fail(err)
		u.deliver()
	}
	e.endServed(err)
}

// commitParts runs the commands of a unit, which found no space together, in several transactions:
// one for those before the command that found none, then one that begins with it. A command is
// refused if it is alone, or the first of a transaction after a refused one: no command before it has
// freed space that a checkpoint would return.
func (e *executor) commitParts(u *unit) {
	whole, ran := u.commands, 0
	n, refused := max(u.fitting(), 1), true
	var similar refusals
	for ran < len(whole) && u.x.waiter == nil && !u.x.c.closing { // a waiter: the rest waits
		u.commands = whole[ran : ran+n]
		u.keep()
		u.x.refused = similar.known()
		err := e.transact([]*unit{u})
		wasRefused := refused
		if refused = errors.Is(err, kv.ErrNoSpace); refused {
			if fit := u.fitting(); n > 1 && (fit > 0 || !wasRefused) {
				u.restore()
				n = max(fit, 1)
				continue
			}
			u.commands = u.commands[:1]
			similar.add(u.commands[0])
		}
		e.note(err)
		u.fail(err)
		e.endServed(err)
		ran += u.ran
		n = len(whole) - ran
	}
	u.commands, u.ran, u.x.refused = whole, ran, nil
}

// refusals are the sizes of the smallest commands of a unit that were refused. After triedRefusals,
// those like them, and at least as large, are refused untried: each may cost two transactions and a
// checkpoint.
type refusals struct {
	n     int
	sizes map[*command]int
}

const triedRefusals = 4

// add records a refused command. The size of EXEC and of a script says nothing about what it writes.
func (r *refusals) add(args [][]byte) {
	r.n++
	cmd := lookup(args[0])
	if cmd == nil || cmd.flags&(flagNow|flagScript) != 0 {
		return
	}
	if r.sizes == nil {
		r.sizes = map[*command]int{}
	}
	size := argBytes(args)
	if least, ok := r.sizes[cmd]; !ok || size < least {
		r.sizes[cmd] = size
	}
}

// known are the sizes if there are enough, else nil.
func (r *refusals) known() map[*command]int {
	if r.n < triedRefusals {
		return nil
	}
	return r.sizes
}

func argBytes(args [][]byte) (n int) {
	for _, arg := range args {
		n += len(arg)
	}
	return n
}

// fitting is the number of commands before the one that found no space. A commit that found none
// names no command: half of them are next.
func (u *unit) fitting() int {
	if u.failed {
		return u.ran - 1
	}
	return len(u.commands) / 2
}

// transact runs units in one transaction, if need be a second time with savepoints.
func (e *executor) transact(units []*unit) error {
	err := e.attempt(units, false)
	if err == errHalfway {
		restore(units)
		err = e.attempt(units, true)
	}
	return err
}

// note logs what has become of a turn, and sends the messages of one that was committed.
func (e *executor) note(err error) {
	e.s.noteCommit(err)
	for _, m := range e.messages {
		e.s.hub.publish(m.kind, m.channel, m.text)
	}
	e.messages = nil
}

func (e *executor) attempt(units []*unit, careful bool) error {
	s := e.s
	err := s.db.Update(func(tx *kv.Tx) error {
		tx.SetDurability(s.durability())
		e.publishExpired(s.store.TakeExpired()) // deleted in transactions before this one
		s.store.Turn(tx)
		defer s.store.TakeExpired()
		for _, u := range units {
			if u.failed = !u.run(tx, careful); u.failed {
				if err := tx.Err(); err != nil { // no savepoint is left to go back to
					return err
				}
				return errHalfway
			}
		}
		return tx.Err()
	})
	if err != nil {
		e.messages = nil
		e.endServed(err)
	}
	return err
}

func (e *executor) publishExpired(keys []keyspace.ExpiredKey) {
	for _, key := range keys {
		for _, m := range e.s.eventMessages(expiredEvent(key)) {
			e.s.hub.publish(m.kind, m.channel, m.text)
		}
	}
}

// run runs the commands of a unit in tx; ok false: one has failed half-way.
func (u *unit) run(tx *kv.Tx, careful bool) (ok bool) {
	if u.internal != nil {
		savepoint := tx.Savepoint()
		if u.err = u.internal(tx); u.err != nil {
			u.err = errors.Join(u.err, tx.RollbackTo(savepoint))
		}
		return true
	}
	x := &u.x
	x.tx, x.turn, x.careful, x.halfway, x.waiter = tx, true, careful, false, nil
	ok = true
	for u.ran = 0; u.ran < len(u.commands) && ok && x.waiter == nil && !x.c.closing; u.ran++ {
		args := u.commands[u.ran]
		cmd, err := x.c.check(args)
		x.execute(cmd, err, args)
		ok = !x.halfway && x.s.exec.serve(tx, careful)
	}
	x.tx, x.turn = nil, false
	return ok
}

func restore(units []*unit) {
	for _, u := range units {
		u.restore()
	}
}

// restore makes the connection what it was before the unit has run.
func (u *unit) restore() {
	if u.internal != nil {
		return
	}
	c := u.x.c
	if !slices.Equal(c.watched, u.before.watched) {
		c.unwatch()
		c.s.watches.add(u.before.watched)
	}
	u.dropWaiter()
	c.sessionState, c.closing = u.before, u.closing
	c.w.Version = u.version
	c.w.Truncate(u.mark)
}

// dropWaiter forgets the waiter of a turn that is rolled back.
func (u *unit) dropWaiter() {
	if w := u.x.waiter; w != nil && u.x.s.waits.claim(w) {
		u.x.s.waits.remove(w)
	}
	u.x.waiter = nil
}

// fail gives each command an error in place of its reply after a commit that has failed.
func (u *unit) fail(err error) {
	switch {
	case err == nil:
	case u.internal != nil:
		u.err = err
	default:
		u.dropWaiter()
		u.ran = len(u.commands)
		u.x.w.Truncate(u.mark)
		for range u.commands {
			u.x.writeError(err)
		}
	}
}

// deliver sends the replies of a detached connection, and tells another one to send its own.
func (u *unit) deliver() {
	if c := u.x.c; c != nil && c.detached {
		c.answer()
		return
	}
	u.done <- struct{}{}
}

// maintain deletes expired and dead rows in a transaction of its own: a bounded number of them.
func (e *executor) maintain() {
	s := e.s
	e.urgent = false
	var pending bool
	err := s.db.View(func(tx *kv.Tx) (err error) {
		pending, err = s.store.Pending(tx)
		return err
	})
	if err != nil || !pending {
		return
	}
	var purged []keyspace.ExpiredKey
	err = s.db.Update(func(tx *kv.Tx) (err error) {
		tx.SetDurability(kv.NoSync) // what is lost is found again
		e.publishExpired(s.store.TakeExpired())
		s.store.Turn(tx)
		defer func() { purged = s.store.TakeExpired() }()
		e.urgent = true
		force := s.acceptClock.Swap(false)
		for began := time.Now(); e.urgent && time.Since(began) < purgeTime; {
			if _, e.urgent, err = s.store.Purge(tx, purgeStep, force); err != nil {
				return err
			}
		}
		more, err := s.store.Reclaim(tx)
		e.urgent = e.urgent || more
		return err
	})
	if err != nil {
		e.urgent = false
		s.log.Error("deletion of expired rows failed", "error", err)
		return
	}
	e.publishExpired(purged)
}
