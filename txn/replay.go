package txn

import (
	"encoding/binary"
	"errors"
	"fmt"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

var (
	errBadRedo = errors.New("redo does not decode")
	errTooLong = errors.New("the log is longer than a batch")
)

// A replayer reads the commits of the log, and applies them to the state that a writer began from. It holds their operations back,
// and applies many of them at a time in the order of their keys. Nobody sees a state before all are applied.
type replayer struct {
	s       *Store
	meta    *pager.Meta
	w       *writer // nil: nothing may be applied yet
	most    int     // bytes of operations in a batch, unless one operation is larger
	batch   *batch
	rising  rising
	partial bool // the batch was given up: without a writer, for what it does not hold or what does not belong to a log

	named []place // by operations that no batch has taken
	laid  uint64  // leaves that the log names, so far

	seq  uint64   // of the last commit; of the meta page if there is none
	mark int64    // likewise
	tail wal.Tail // once the log was read to its end
}

// A batch is a share of the cache. With the default it is all that a store of up to 128 MiB keeps in its log as a rule: then each page is
// found, changed and written once, however often the log comes back to it.
const batchFraction = 3

// maxBatch keeps where an operation begins in a batch within 32 bits, and a batch within an int of 32 bits.
const maxBatch = 1 << 30

func batchBytes(cache, log int64) int64 { return min(cache/batchFraction, log, maxBatch) }

// newReplayer is for the log after m, of at most logBytes.
func newReplayer(s *Store, m *pager.Meta, logBytes int64) *replayer {
	most := batchBytes(s.o.CacheBytes, logBytes)
	return &replayer{s: s, meta: m, most: int(most), batch: newBatch(most, !s.o.Inline), seq: m.Seq, mark: m.ClockMark}
}

// commit takes the payload of the next commit. The clock is not looked at.
func (p *replayer) commit(payload []byte, lsn wal.LSN) error {
	if err := p.whole(payload); err != nil {
		return err
	}
	p.seq++
	if p.partial {
		p.note(payload)
		return nil
	}
	before := len(p.batch.ops)
	err := p.add(payload, lsn)
	if p.w == nil && err != nil {
		p.named = append(p.named, p.batch.named(before)...)
		p.note(payload)
		p.free()
		p.partial, err = true, nil // who applies the log will tell
	}
	return err
}

// whole says with wal.ErrTaken that leaves which the operations of a commit name are not what they were when its record was made.
func (p *replayer) whole(payload []byte) error {
	for rest := payload[min(redoHead, len(payload)):]; len(rest) > 0; {
		if p := asPlainPut(rest); p.end > 0 {
			rest = rest[p.end:]
			continue
		}
		r, more, err := decodeRedo(rest)
		if err != nil {
			return nil // for who applies it
		}
		if r.op == opLeaves {
			there, err := p.s.pg.HasLaid(p.meta, r.ref, r.sums)
			if err != nil {
				return err
			}
			if !there {
				return fmt.Errorf("%w: of %d leaves from page %d on", wal.ErrTaken, r.leaves, r.ref.Pgid)
			}
			if err := p.counted(r); err != nil {
				return err
			}
		}
		rest = more
	}
	return nil
}

// counted holds the number of leaves that the log names against the file: each is a page of its own, which claim would find out, and to read the same one again and
// again takes long.
func (p *replayer) counted(r redo) error {
	most := uint64(p.s.pg.FileBytes()) / uint64(p.meta.PageSize)
	if p.laid += r.leaves; p.laid > most {
		return badfile.At(p.s.path+" (log)", -1, "it names more leaves than the file has pages, which are %d", most)
	}
	return nil
}

// note takes down what places the operations of a commit name, up to the first that does not decode.
func (p *replayer) note(payload []byte) {
	for rest := payload[min(redoHead, len(payload)):]; len(rest) > 0; {
		r, more, err := decodeRedo(rest)
		if err != nil {
			return
		}
		if r.names() {
			p.named = append(p.named, r.place)
		}
		rest = more
	}
}

// claim takes the pages of all that the log names, and sees to it that no page is born in an epoch of theirs or before. It comes
// before anything is allocated, once all of the log was read.
func (p *replayer) claim() error {
	s := p.s
	for _, list := range [][]place{p.named, p.batch.named(len(p.batch.ops))} {
		for _, r := range list {
			if r.ref.Epoch == 0 || r.ref.Epoch >= pager.MaxEpoch-1 {
				return badfile.At(s.path+" (log)", -1, "it names pages of epoch %d", r.ref.Epoch)
			}
			if err := s.pg.Claim(r.ref, r.pages(s.pg.PageSize())); err != nil {
				return err
			}
			s.epoch = max(s.epoch, r.ref.Epoch+1)
		}
	}
	return nil
}

func (p *replayer) add(payload []byte, lsn wal.LSN) error {
	if len(payload) < redoHead {
		return p.bad(lsn, fmt.Errorf("%w: %d bytes", errBadRedo, len(payload)))
	}
	if seq := binary.LittleEndian.Uint64(payload); seq != p.seq {
		return p.bad(lsn, fmt.Errorf("%w: commit %d follows commit %d", errBadRedo, seq, p.seq-1))
	}
	for rest := payload[redoHead:]; len(rest) > 0; {
		n := leading(rest, p.most)
		if have := len(p.batch.ops); have > 0 && have+n > p.most {
			if err := p.apply(false); err != nil {
				return err
			}
		}
		p.batch.add(rest[:n], lsn)
		rest = rest[n:]
	}
	p.mark = int64(binary.LittleEndian.Uint64(payload[8:]))
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

// finish applies what is left, unless err says that there is no use, and makes the last commit the newest one.
func (p *replayer) finish(err error) error {
	defer p.free()
	if err == nil {
		err = p.apply(true)
	}
	if err != nil {
		return err
	}
	h := *p.s.head // nobody has seen it yet: the version of a store that is being opened
	h.seq, h.mark = p.seq, p.mark
	p.s.head = &h
	return nil
}

// free gives the memory back. p may be nil.
func (p *replayer) free() {
	if p != nil {
		p.batch.free()
	}
}

// apply applies the batch and empties it. last says that no other comes.
func (p *replayer) apply(last bool) (err error) {
	if p.w == nil {
		return errTooLong
	}
	backlog := p.s.pg.NewBacklog()
	defer func() {
		if kept := backlog.End(); err == nil {
			err = p.s.dataError(kept)
		}
	}()
	order, settled := p.batch.sort()
	if p.s.asLogged {
		return p.applyAsLogged()
	}
	if !last {
		settled = len(order)
	}
	wrote := func(leaves int) error { return p.s.dataError(backlog.Wrote(leaves * p.w.PageSize())) }
	for done := 0; done < len(order); {
		if err := p.w.spill(); err != nil {
			return err
		}
		write := done >= settled && !p.s.o.ReadOnly // what no operation comes back to
		if write {
			if err := p.w.spillBehind(backlog); err != nil {
				return err
			}
		}
		n, err := p.applySome(order[done:], write, wrote)
		if err != nil {
			return p.bad(p.batch.lsn(order[done]), err)
		}
		done += n
	}
	p.batch.reset()
	return nil
}

// applyAsLogged is apply in the order in which the operations were carried out first.
func (p *replayer) applyAsLogged() error {
	for rest := p.batch.ops; len(rest) > 0; {
		at := uint32(len(p.batch.ops) - len(rest))
		if err := p.w.spill(); err != nil {
			return err
		}
		r, more, err := decodeRedo(rest)
		if err != nil {
			err = fmt.Errorf("%w: %w", errBadRedo, err)
		} else {
			err = p.w.apply(r)
		}
		if err == nil && (r.op == opDrop || r.op == opClear) {
			err = p.w.emptyTrash()
		}
		if err != nil {
			return p.bad(p.batch.lsn(at), err)
		}
		rest = more
	}
	p.batch.reset()
	return nil
}

// emptyTrash gives back the pages of dropped trees. Checkpoints do that, also those that came to no end for want of space, or of time: then commits after them had the
// pages of trees that no checkpoint had reached.
func (w *writer) emptyTrash() error {
	for {
		if none, err := w.reclaim(); none || err != nil {
			return err
		}
	}
}

// applySome applies the operation at the head of order, and says how many it has applied: with a put some that follow it.
func (p *replayer) applySome(order []uint32, write bool, wrote func(leaves int) error) (int, error) {
	if g := &p.rising; len(g.puts) == 0 || !g.enough() {
		r, err := g.gather(p.batch, order, p.w.PageSize())
		if err != nil {
			return 0, err
		}
		if len(g.puts) == 0 {
			return 1, p.w.apply(r)
		}
	}
	n, err := p.rising.apply(p.w, write, wrote)
	p.rising.puts = p.rising.puts[n:]
	return n, err
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
	case opPutNamed:
		if r.size <= tree.MaxInline(w.PageSize()) {
			return fmt.Errorf("%w: a named value of %d bytes", errBadRedo, r.size)
		}
		err = w.putNamed(r)
	case opLeaves:
		err = w.takeLeaves(r)
	case opDelete:
		_, err = w.delete(r.id, r.key, nil)
	case opRange:
		_, err = w.deleteRange(r.id, r.key, r.value)
	case opSetTag:
		_, err = w.setTag(r.id, r.key, r.tag)
	case opNextTree:
		if r.id >= maxTree {
			return fmt.Errorf("%w: trees up to number %d", errBadRedo, r.id)
		}
		w.nextID = max(w.nextID, r.id)
	default:
		err = w.shape(r.op, r.id)
	}
	return err
}
