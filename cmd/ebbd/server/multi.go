package server

import "bytes"

// queuedCommand is a command between MULTI and EXEC.
type queuedCommand struct {
	cmd  *command
	args [][]byte
}

// queuedBytes bounds the arguments that one connection queues.
const queuedBytes = 256 << 20

// enqueue keeps a command for EXEC. The bytes of a pipeline are overwritten when it has run.
func (c *conn) enqueue(cmd *command, args [][]byte) error {
	kept := make([][]byte, len(args))
	for i, arg := range args {
		kept[i] = bytes.Clone(arg)
		c.queuedBytes += len(arg)
	}
	if c.queuedBytes > queuedBytes {
		c.multiFailed, c.queued = true, nil
		return replyError("ERR commands of the transaction exceed 256 MiB")
	}
	c.queued = append(c.queued, queuedCommand{cmd, kept})
	return nil
}

// discard ends MULTI and WATCH.
func (c *conn) discard() {
	c.multi, c.multiFailed, c.queued, c.queuedBytes = false, false, nil, 0
	c.unwatch()
}

func multiCommand(r *request) error {
	if r.c.multi {
		return replyError("ERR MULTI calls can not be nested")
	}
	r.c.multi = true
	r.w.Simple("OK")
	return nil
}

func discardCommand(r *request) error {
	if !r.c.multi {
		return replyError("ERR DISCARD without MULTI")
	}
	r.c.discard()
	r.w.Simple("OK")
	return nil
}

// execCommand runs the queued commands in the transaction of the turn or, if all of them only read,
// in one read transaction.
func execCommand(r *request) error {
	c := r.c
	if !c.multi {
		return replyError("ERR EXEC without MULTI")
	}
	queued, failed := c.queued, c.multiFailed
	if failed {
		c.discard()
		return errExecAbort
	}
	intact := true
	if len(c.watched) > 0 {
		if err := r.bind(); err != nil {
			return err
		}
		intact = r.s.watches.intact(c.watched, r.sp.Now)
	}
	c.discard()
	if !intact {
		r.w.NullArray()
		return nil
	}
	r.w.Array(len(queued))
	r.nested = true
	for _, q := range queued {
		r.call(q.cmd, q.args)
	}
	r.nested = false
	return nil
}

func watchCommand(r *request) error {
	if r.c.multi {
		return replyError("ERR WATCH inside MULTI is not allowed")
	}
	if err := r.bind(); err != nil {
		return err
	}
	for _, key := range r.args[1:] {
		row, err := r.sp.Load(key)
		if err != nil {
			return err
		}
		ends := int64(0)
		if row.Type != 0 {
			if ends, err = r.sp.NextChange(key, &row); err != nil {
				return err
			}
		}
		r.c.watch(key, ends)
	}
	r.w.Simple("OK")
	return nil
}

func unwatchCommand(r *request) error {
	r.c.unwatch()
	r.w.Simple("OK")
	return nil
}
