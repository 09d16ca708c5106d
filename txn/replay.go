package txn

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

var errBadRedo = errors.New("redo does not decode")

// A replayer reads the commits of the log, part by part, and applies them to the state that a
// writer began from. It buffers their operations, and applies many at a time in key order. No state
// becomes visible before all are applied.
//
// Its memory is bounded, whatever the commits contain: the operations of a buffer, and one that is
// split between parts. A value above largeValue is not buffered: the replayer writes it to its
// extent part by part.
type replayer struct {
	s     *Store
	meta  *pager.Meta
	w     *writer // nil: the replayer only verifies the log
	most  int     // bound on the cost of a buffer, unless one operation costs more
	bytes int64   // bound on the bytes of a buffer
	batch *replayBuffer
	run   ascendingRun
	// partial says that the buffer was dropped: it lacks operations, or has some that do not belong
	// to the log. Only without a writer.
	partial bool

	refs   []extentPlace // of all operations; without a writer
	leaves uint64        // leaves that records reference, so far

	lsn    wal.LSN // of the current commit
	before before  // state before it
	ignore bool    // the rest of the current commit
	carry  []byte  // incomplete operation, or incomplete head of the redo
	headed bool    // the head was read
	large  *large  // incomplete large value; nil: none
	stop   stop    // found by the verifying replayer, for the applying one

	seq  uint64   // of the last commit; of the meta page if there is none
	mark int64    // of the last commit; of the meta page if there is none
	tail wal.Tail // set at the end of the log
}

// before is what forget restores when the current commit turns out to be lost.
type before struct {
	seq  uint64
	mark int64
	refs int
	ops  int // bytes in the buffer
}

// stop is the first commit that cannot be applied, and why; at 0: there is none.
type stop struct {
	at  wal.LSN
	err error
}

// A buffer is a part of the cache. With the default it usually holds the whole log of a store of up
// to 128 MiB: then each page is found, changed and written once, however many operations change it.
const batchFraction = 3

// maxBatch keeps the offsets of operations in a buffer within 32 bits, and its length within an int
// of 32 bits.
const maxBatch = 1 << 30

func batchBytes(cache int64) int64 { return min(cache/batchFraction, maxBatch) }

// newReplayer reads the log after m, of at most logBytes.
func newReplayer(s *Store, m *pager.Meta, logBytes int64) *replayer {
	most := batchBytes(s.o.CacheBytes)
	return &replayer{
		s: s, meta: m, most: int(most), bytes: min(most, logBytes*mostCost),
		batch: newReplayBuffer(min(most, logBytes), !s.o.Inline), seq: m.Seq, mark: m.ClockMark,
	}
}

// readLog reads the log after m to its end. Without a writer it only verifies the log and collects
// its references; the log need not be read again unless partial is set. With a writer, after that,
// it applies operations that the buffer does not hold, up to the verified end of the log.
func (s *Store) readLog(
	m, newest *pager.Meta, found *wal.ScanResult, proved *replayer, w *writer,
) (p *replayer, err error) {
	p = newReplayer(s, m, found.MaxBytes(wal.LSN(m.LogStart)))
	if p.w = w; proved != nil {
		p.stop = proved.stop
	}
	whole := false
	defer func() {
		if !whole { // a page fault in the map: the caller does not get p
			p.free()
		}
	}()
	retry, durable := isRetry(m, newest, found), m.LogDurable
	if !retry { // the meta page of an earlier try has no position in this log, only its last commit
		durable = max(durable, newest.LogDurable)
	}
	p.tail, err = found.Replay(wal.LSN(m.LogStart), wal.LSN(durable), p.part)
	if err == nil && retry && p.seq != newest.Seq {
		err = badfile.At("log", -1, "it ends with commit %d, an earlier recovery found commit %d",
			p.seq, newest.Seq)
	}
	whole = true
	return p, err
}

// part reads the next part of a commit. Replay uses no clock.
func (p *replayer) part(c wal.Part) error {
	if c.First {
		if p.stop.at == c.Commit {
			return p.stop.err
		}
		p.begin(c.Commit)
	}
	err := p.take(c.Payload)
	if err == nil && c.Last && !p.ignore && (!p.headed || len(p.carry) > 0 || p.large != nil) {
		err = fmt.Errorf("%w: %w", errBadRedo, errShortRedo)
	}
	switch {
	case errors.Is(err, wal.ErrRefLost):
		p.forget(err)
	case errors.Is(err, errBadRedo) && p.w == nil:
		if p.stop.at == 0 {
			p.stop = stop{c.Commit, p.badRecord(c.Commit, err)}
		}
		p.giveUp() // the applying replayer returns the error
		p.ignore, err = true, nil
	case err != nil:
		err = p.badRecord(c.Commit, err)
	}
	return err
}

// begin starts a commit.
func (p *replayer) begin(lsn wal.LSN) {
	p.lsn, p.before = lsn, before{p.seq, p.mark, len(p.refs), len(p.batch.ops)}
	p.seq++
	p.carry, p.headed, p.large, p.ignore = p.carry[:0], false, nil, false
}

// forget restores the state before the current commit.
func (p *replayer) forget(why error) {
	if p.stop.at == 0 {
		p.stop = stop{p.lsn, why}
	}
	p.seq, p.mark, p.refs = p.before.seq, p.before.mark, p.refs[:p.before.refs]
	if len(p.batch.ops) > p.before.ops {
		p.giveUp()
	}
}

// giveUp drops the buffer of a verifying replayer, which does not hold the whole log: an applying
// one reads the log again.
func (p *replayer) giveUp() {
	p.free()
	p.partial = true
}

// take reads bytes of a commit.
func (p *replayer) take(b []byte) (err error) {
	for len(b) > 0 && err == nil && !p.ignore {
		switch {
		case !p.headed:
			b, err = p.takeHead(b)
		case p.large != nil:
			b, err = p.takeValue(b)
		case len(p.carry) > 0:
			b, err = p.complete(b)
		default:
			err = p.takeOps(b)
			b = nil
		}
	}
	return err
}

func (p *replayer) takeHead(b []byte) (rest []byte, err error) {
	n := min(redoHead-len(p.carry), len(b))
	if p.carry = append(p.carry, b[:n]...); len(p.carry) < redoHead {
		return nil, nil
	}
	if seq := binary.LittleEndian.Uint64(p.carry); seq != p.seq {
		return nil, fmt.Errorf("%w: commit %d follows commit %d", errBadRedo, seq, p.seq-1)
	}
	p.mark = int64(binary.LittleEndian.Uint64(p.carry[8:]))
	p.carry, p.headed = p.carry[:0], true
	return b[n:], nil
}

// takeOps reads bytes that begin with an operation. The last operation may be incomplete.
func (p *replayer) takeOps(b []byte) error {
	n, ops, err := p.scan(b)
	if err != nil && !errors.Is(err, errShortRedo) {
		return err
	}
	if err := p.add(b[:n], ops); err != nil || n == len(b) {
		return err
	}
	if begun, err := p.beginLarge(b[n:]); begun || err != nil {
		return err
	}
	p.carry = append(p.carry, b[n:]...)
	return nil
}

// complete extends carry until it is an operation, and returns the bytes behind it.
func (p *replayer) complete(b []byte) (rest []byte, err error) {
	had := len(p.carry)
	// Twice as much each time: failed decodes read no more bytes than the operation has.
	n := min(len(b), max(had, 64))
	p.carry = append(p.carry, b[:n]...)
	_, more, err := decodeRedo(p.carry)
	switch {
	case errors.Is(err, errShortRedo):
		begun, err := p.beginLarge(p.carry)
		if begun {
			p.carry = p.carry[:0]
		}
		return b[n:], err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errBadRedo, err)
	}
	op := p.carry[:len(p.carry)-len(more)]
	if _, _, err = p.scan(op); err == nil {
		err = p.add(op, 1)
	}
	p.carry = p.carry[:0]
	return b[len(op)-had:], err
}

// scan decodes operations at the start of b, and returns their bytes and number. errShortRedo: the
// next operation is incomplete. A verifying replayer also collects the places that they reference,
// and returns wal.ErrRefLost if referenced leaves are not those that were logged.
func (p *replayer) scan(b []byte) (n, ops int, err error) {
	for n < len(b) {
		if put := fastDecodePut(b[n:]); put.end > 0 {
			n, ops = n+put.end, ops+1
			continue
		}
		r, rest, err := decodeRedo(b[n:])
		switch {
		case errors.Is(err, errShortRedo):
			return n, ops, err
		case err != nil:
			return n, ops, fmt.Errorf("%w: %w", errBadRedo, err)
		}
		if p.w == nil && r.isLogRef() {
			if err := p.collectRef(r); err != nil {
				return n, ops, err
			}
		}
		n, ops = len(b)-len(rest), ops+1
	}
	return n, ops, nil
}

// collectRef verifies and collects the place that an operation references.
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
// It runs after the whole log was read, before anything else allocates.
func (p *replayer) claimPages() error {
	s := p.s
	for _, r := range p.refs {
		if r.ref.Epoch == 0 || r.ref.Epoch >= pager.MaxEpoch-1 {
			return badfile.At(s.path+" (log)", -1, "it names pages of epoch %d", r.ref.Epoch)
		}
		if err := s.pg.Alloc.Claim(r.ref, r.pages(s.pg.PageSize())); err != nil {
			return err
		}
		s.epoch = max(s.epoch, r.ref.Epoch+1)
	}
	return nil
}

// opCost is the cost of an operation in a buffer beside its bytes: its index entry, and two heads
// of its key. With it an operation costs at most mostCost times its bytes in the log.
const (
	opCost   = 4 + 8 + 8
	mostCost = 8
)

// add adds whole operations to the buffer, and applies the buffer before it exceeds its bound.
func (p *replayer) add(b []byte, ops int) error {
	for len(b) > 0 && !p.partial {
		n := prefixLen(b, p.most)
		cost := n + ops*opCost // all operations count with the first bytes: they are of one part
		if len(p.batch.ops) > 0 && p.batch.cost+cost > p.most {
			if p.w == nil {
				p.giveUp()
				break
			}
			if err := p.apply(false); err != nil {
				return err
			}
		}
		p.batch.add(b[:n], p.lsn)
		p.batch.cost += cost
		b, ops = b[n:], 0
	}
	return nil
}

// prefixLen is the length of the operations at the start of ops that have at most most bytes
// together, but at least of one. Bytes that do not decode stay together with all that follows.
func prefixLen(ops []byte, most int) int {
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
