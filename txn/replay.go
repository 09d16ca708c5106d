package txn

import (
	"errors"
	"fmt"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

var errBadRedo = errors.New("redo does not decode")

// A replayer reads the commits of the log, part by part. Without a writer it verifies the log, and
// buffers the operations as long as they fit; with one it applies them to the state that the writer
// began from. No state becomes visible before all are applied.
//
// Its memory is bounded, whatever the commits contain: the operations of a buffer, and one that is
// split between parts. A value above largeValue is not buffered: the replayer writes it to its
// extent part by part.
type replayer struct {
	redoReader
	s        *Store
	meta     *pager.Meta
	w        *writer // nil: the replayer only verifies the log
	buffer   replayBuffer
	spilling replaySpill
	large    *large // incomplete large value; nil: none

	refs   []extentPlace // of all operations; without a writer
	leaves uint64        // leaves that records reference, so far
	lost   lostCommit    // found by the verifying replayer, for the applying one

	lsn  wal.LSN    // of the current commit
	last commitHead // of the last complete commit; of the meta page if there is none
	tail wal.Tail   // set at the end of the log
}

// commitHead is the head of a commit's redo, and the number of references up to the end of it.
type commitHead struct {
	seq  uint64
	mark int64
	refs int
}

// lostCommit is the first commit with lost leaves; at 0: there is none. The log ends before it.
type lostCommit struct {
	at  wal.LSN
	err error
}

// newReplayer returns a replayer of the log after m, of at most logBytes. free frees its memory.
func newReplayer(s *Store, m *pager.Meta, logBytes int64) *replayer {
	return &replayer{
		s: s, meta: m, buffer: newReplayBuffer(s, logBytes), last: commitHead{seq: m.Seq, mark: m.ClockMark},
	}
}

// verifyLog reads the log after m to its end, and collects its references, and its operations if the
// buffer holds them all.
func verifyLog(s *Store, m, newest *pager.Meta, found *wal.ScanResult) (*replayer, error) {
	p := newReplayer(s, m, found.MaxBytes(wal.LSN(m.LogStart)))
	return p, p.read(newest, found)
}

// applyLog applies the operations of a verified log with w, up to those that are in the buffer at
// the end: finish applies them. It reads the log again if the buffer did not hold it.
func (s *Store) applyLog(
	newest *pager.Meta, found *wal.ScanResult, verified *replayer, w *writer,
) (*replayer, error) {
	if !verified.buffer.overflowed {
		verified.applyWith(w)
		return verified, nil
	}
	p := newReplayer(s, verified.meta, found.MaxBytes(wal.LSN(verified.meta.LogStart)))
	p.lost = verified.lost
	p.applyWith(w)
	return p, p.read(newest, found)
}

// read reads the log to its end. After an error, or a page fault in the map, the buffer is empty.
func (p *replayer) read(newest *pager.Meta, found *wal.ScanResult) (err error) {
	m, whole := p.meta, false
	defer func() {
		if !whole {
			p.free()
		}
	}()
	retry, durable := isRetry(m, newest, found), m.LogDurable
	if !retry { // the meta page of an earlier try has no position in this log, only its last commit
		durable = max(durable, newest.LogDurable)
	}
	p.tail, err = found.Replay(wal.LSN(m.LogStart), wal.LSN(durable), p.part)
	if err == nil && retry && p.last.seq != newest.Seq {
		err = badfile.At("log", -1, "it ends with commit %d, an earlier recovery found commit %d",
			p.last.seq, newest.Seq)
	}
	whole = err == nil
	return err
}

// part reads the next part of a commit. Replay uses no clock.
func (p *replayer) part(c wal.Part) error {
	if c.First {
		if p.lost.at == c.Commit {
			return p.lost.err
		}
		p.lsn = c.Commit
		p.begin()
	}
	err := p.takePart(c.Payload)
	if err == nil && p.headed && p.seq != p.last.seq+1 {
		err = fmt.Errorf("%w: commit %d follows commit %d", errBadRedo, p.seq, p.last.seq)
	}
	if err == nil && c.Last {
		if p.large != nil {
			err = p.short()
		} else if err = p.end(); err == nil {
			p.last = commitHead{p.seq, p.mark, len(p.refs)}
		}
	}
	if errors.Is(err, wal.ErrRefLost) {
		p.lost, p.refs = lostCommit{c.Commit, err}, p.refs[:p.last.refs]
		p.buffer.discard()
	}
	return p.badRecord(p.lsn, err)
}

func (p *replayer) takePart(b []byte) (err error) {
	if p.large != nil {
		if b, err = p.takeValue(b); err != nil {
			return err
		}
	}
	rest, err := p.take(b, p.operation)
	if err != nil {
		return err
	}
	begun, err := p.beginLarge(rest)
	if !begun {
		p.keep(rest)
	}
	return err
}

// operation takes an operation, which raw encodes.
func (p *replayer) operation(r redo, raw []byte) error {
	if err := p.valid(r, uint64(len(r.value))); err != nil {
		return err
	}
	if p.w == nil && r.isLogRef() {
		if err := p.collectRef(r); err != nil {
			return err
		}
	}
	return p.bufferOp(r, raw)
}

// badRecord adds the position of a commit to the error of an operation that does not fit the state.
func (p *replayer) badRecord(lsn wal.LSN, err error) error {
	if errors.Is(err, errBadRedo) || isNoTree(err) {
		return badfile.At(p.s.path+" (log)", int64(lsn), "record at LSN %d: %v", lsn, err)
	}
	return err
}

// collectRef verifies and collects the place that an operation references. It returns wal.ErrRefLost
// if referenced leaves are not those that were logged.
func (p *replayer) collectRef(r redo) error {
	p.refs = append(p.refs, r.extentPlace)
	if r.op != opLeaves {
		return nil
	}
	there, err := p.s.pg.VerifyLeafRun(p.meta, r.ref, r.sums)
	if err != nil {
		return err
	}
	if !there {
		return fmt.Errorf("%w: of %d leaves from page %d on", wal.ErrRefLost, r.leaves, r.ref.Pgid)
	}
	return p.checkLeafCount(r)
}

// checkLeafCount verifies the number of referenced leaves against the size of the file: each leaf
// is a page of its own. claimPages would detect duplicates too, but only after reading all of them.
func (p *replayer) checkLeafCount(r redo) error {
	most := uint64(p.s.pg.Alloc.FileBytes()) / uint64(p.meta.PageSize)
	if p.leaves += r.leaves; p.leaves > most {
		return badfile.At(p.s.path+" (log)", -1,
			"it names more leaves than the file has pages, which are %d", most)
	}
	return nil
}

// claimPages allocates the pages of all references, and raises the epoch of new pages above theirs.
// It verifies that extents are those that were logged, as collectRef does for leaves. It runs after
// the whole log was read, before anything else allocates.
func (p *replayer) claimPages() error {
	s := p.s
	for _, r := range p.refs {
		if r.ref.Epoch == 0 || r.ref.Epoch >= pager.MaxEpoch-1 {
			return badfile.At(s.path+" (log)", -1, "it names pages of epoch %d", r.ref.Epoch)
		}
		err := s.pg.Alloc.Claim(r.ref, r.pages(s.pg.PageSize()))
		if err == nil && r.leaves == 0 {
			err = s.pg.VerifyExtentSum(r.ref, r.sum)
		}
		if err != nil {
			return err
		}
		s.epoch = max(s.epoch, r.ref.Epoch+1)
	}
	return nil
}
