package server

import (
	"errors"
	"time"

	"github.com/ebbkv/ebb/kv"
)

const (
	// A turn takes at most this many commands and bytes of arguments from its queue.
	turnCommands = 4096
	turnBytes    = 16 << 20
	// purgeStep bounds the expired rows that one turn deletes.
	purgeStep = 1024
)

// unit is the part of a pipeline that one connection gives to a turn, or a function of the server.
type unit struct {
	x        execution
	commands [][][]byte
	bytes    int

	internal func(tx *kv.Tx) error

	mark int // length of the replies before
	err  error
	done chan struct{}
}

// executor runs turns, one after the other.
type executor struct {
	s     *Server
	queue chan *unit
	// urgent says that expired or dead rows were left over.
	urgent bool
	// stopped is closed when the last turn has ended.
	stopped chan struct{}
}

func newExecutor(s *Server) *executor {
	return &executor{s: s, queue: make(chan *unit, 1024), stopped: make(chan struct{})}
}

// submit runs commands of a connection in a turn and waits for its commit.
func (e *executor) submit(c *conn, commands [][][]byte) {
	u := &c.unit
	u.commands, u.bytes, u.err = commands, 0, nil
	for _, args := range commands {
		for _, arg := range args {
			u.bytes += len(arg)
		}
	}
	u.mark = c.w.Len()
	e.queue <- u
	<-u.done
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

func (e *executor) commit(units []*unit) {
	s := e.s
	undo := func() {}
	err := s.db.Update(func(tx *kv.Tx) (err error) {
		tx.SetDurability(s.durability())
		if undo, err = s.store.Drain(tx); err != nil {
			return err
		}
		for _, u := range units {
			u.run(tx)
		}
		return tx.Err()
	})
	if err != nil {
		undo()
		s.log.Error("turn failed", "error", err)
	}
	s.noteCommit(err)
	for _, u := range units {
		u.finish(err)
	}
}

func (u *unit) run(tx *kv.Tx) {
	if u.internal != nil {
		savepoint := tx.Savepoint()
		if u.err = u.internal(tx); u.err != nil {
			u.err = errors.Join(u.err, tx.RollbackTo(savepoint))
		}
		return
	}
	x := &u.x
	x.tx, x.turn = tx, true
	for _, args := range u.commands {
		x.execute(args)
		if x.c.closing {
			break
		}
	}
	x.tx, x.turn = nil, false
}

// finish tells the connection that its replies are to be sent. After a failed commit each command
// has an error instead.
func (u *unit) finish(err error) {
	switch {
	case err == nil:
	case u.internal != nil:
		u.err = err
	default:
		u.x.w.Truncate(u.mark)
		for range u.commands {
			u.x.writeError(err)
		}
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
	undo := func() {}
	err = s.db.Update(func(tx *kv.Tx) (err error) {
		tx.SetDurability(kv.NoSync) // what is lost is found again
		if undo, err = s.store.Drain(tx); err != nil {
			return err
		}
		if _, e.urgent, err = s.store.Purge(tx, purgeStep); err != nil {
			return err
		}
		more, err := s.store.Reclaim(tx)
		e.urgent = e.urgent || more
		return err
	})
	if err != nil {
		undo()
		e.urgent = false
		s.log.Error("deletion of expired rows failed", "error", err)
	}
}
