package txn

import (
	"encoding/binary"
	"errors"
	"fmt"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/wal"
)

var errBadRedo = errors.New("redo does not decode")

// A replayer applies the commits of the log to the state that the writer began from. It holds their operations back, and
// applies a batch of them in the order of their keys after the next one was read, while that is put in order beside it.
// Nobody sees a state before all are applied.
type replayer struct {
	s       *Store
	w       *writer
	most    int         // bytes of operations in a batch, unless one operation is larger
	filling *batch      // gets the operations that are read
	sorting bool        // a batch is put in order
	sorted  chan *batch // gets it
}

// Batches are a share of the cache, and there are two of them at a time. In larger ones more rows share a page, and less of it
// all stays in the processor's cache: from 4 to 32 MiB it comes to the same, and fresh memory costs, too.
const (
	batchFraction = 32
	maxBatch      = 8 << 20
)

// newReplayer is for a log of at most logBytes.
func newReplayer(s *Store, w *writer, logBytes int64) *replayer {
	most := min(s.o.CacheBytes/batchFraction, maxBatch)
	return &replayer{s: s, w: w, most: int(most), filling: newBatch(min(most, logBytes)), sorted: make(chan *batch, 1)}
}

// commit takes the payload of the next commit. The clock is not looked at.
func (p *replayer) commit(payload []byte, lsn wal.LSN) error {
	if len(payload) < redoHead {
		return p.bad(lsn, fmt.Errorf("%w: %d bytes", errBadRedo, len(payload)))
	}
	seq := binary.LittleEndian.Uint64(payload)
	mark := int64(binary.LittleEndian.Uint64(payload[8:]))
	if seq != p.s.head.seq+1 {
		return p.bad(lsn, fmt.Errorf("%w: commit %d follows commit %d", errBadRedo, seq, p.s.head.seq))
	}
	for rest := payload[redoHead:]; len(rest) > 0; {
		n := leading(rest, p.most)
		if have := len(p.filling.ops); have > 0 && have+n > p.most {
			if err := p.turn(); err != nil {
				return err
			}
		}
		p.filling.add(rest[:n], lsn)
		rest = rest[n:]
	}
	h := *p.s.head // nobody has seen it yet: the version of a store that is being opened
	h.seq, h.mark = seq, mark
	p.s.head = &h
	p.s.recovery.CommitsReplayed++
	return nil
}

// leading is the length of the operations at the start of ops that have at most most bytes together, of one at least. What
// does not decode is left alone with all that comes after it.
func leading(ops []byte, most int) int {
	if len(ops) <= most {
		return len(ops)
	}
	for rest := ops; ; {
		_, more, err := decodeRedo(rest)
		n := len(ops) - len(rest)
		switch {
		case n > 0 && (err != nil || len(ops)-len(more) > most):
			return n
		case err != nil || len(more) == 0:
			return len(ops)
		}
		rest = more
	}
}

// turn has the batch that was filled put in order, and meanwhile applies the one before and empties it for what is read next.
func (p *replayer) turn() error {
	before := p.take()
	p.sorting = true
	go func(b *batch) {
		b.sort()
		p.sorted <- b
	}(p.filling)
	if before == nil {
		p.filling = newBatch(int64(p.most))
		return nil
	}
	p.filling = before
	err := p.apply(before)
	before.reset()
	return err
}

// take waits for the batch that is put in order; nil if there is none.
func (p *replayer) take() *batch {
	if !p.sorting {
		return nil
	}
	p.sorting = false
	return <-p.sorted
}

// finish applies what is left, unless err says that there is no use. Nothing runs afterwards.
func (p *replayer) finish(err error) error {
	before := p.take()
	if err != nil {
		return err
	}
	if before != nil {
		if err := p.apply(before); err != nil {
			return err
		}
	}
	p.filling.sort()
	return p.apply(p.filling)
}

func (p *replayer) apply(b *batch) error {
	for i, at := range b.order {
		if i+askAhead < len(b.order) {
			b.ask(b.order[i+askAhead])
		}
		if err := p.w.spill(); err != nil {
			return err
		}
		r, _, err := decodeRedo(b.ops[at:])
		if err != nil {
			return p.bad(b.lsn(at), fmt.Errorf("%w: %w", errBadRedo, err))
		}
		if err := p.w.apply(r); err != nil {
			return p.bad(b.lsn(at), err)
		}
	}
	return nil
}

// bad says where in the log an operation is that the state before it does not allow.
func (p *replayer) bad(lsn wal.LSN, err error) error {
	if errors.Is(err, errBadRedo) || isNoTree(err) {
		return badfile.At(p.s.path+" (log)", int64(lsn), "record at LSN %d: %v", lsn, err)
	}
	return err
}

func (w *writer) apply(r redo) error {
	if r.id >= trashBit || r.id == 0 {
		return fmt.Errorf("%w: tree %d", errBadRedo, r.id)
	}
	if r.onKey() && (len(r.key) == 0 || len(r.key) > tree.MaxKey(w.PageSize()) || len(r.value) > tree.MaxValue) {
		return fmt.Errorf("%w: key of %d bytes, value of %d", errBadRedo, len(r.key), len(r.value))
	}
	var err error
	switch r.op {
	case opPut, opPutTag:
		_, err = w.put(r.id, r.key, r.value, r.tag)
	case opDelete:
		_, err = w.delete(r.id, r.key)
	case opRange:
		_, err = w.deleteRange(r.id, r.key, r.value)
	case opSetTag:
		_, err = w.setTag(r.id, r.key, r.tag)
	case opNextTree:
		w.nextID = max(w.nextID, r.id)
	default:
		err = w.shape(r.op, r.id)
	}
	return err
}
