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
// writer began from. It holds their operations back, and applies many of them at a time in the
// order of their keys. Nobody sees a state before all are applied.
//
// What it holds is bounded, whatever a commit has: the operations of a batch, and one that its part
// does not have to its end. A value above largeValue is not held, but written to its extent as it
// comes.
type replayer struct {
	s      *Store
	meta   *pager.Meta
	w      *writer // nil: nothing may be applied yet
	most   int     // what a batch may cost, unless one operation costs more
	bytes  int64   // what a batch may take
	batch  *replayBuffer
	rising ascendingRun
	// the batch was given up: without a writer, for what it does not hold or what does not belong
	// to a log
	partial bool

	named []extentPlace // by all operations; without a writer
	laid  uint64        // leaves that the log names, so far

	lsn    wal.LSN // of the commit that is being read
	before before  // state before it
	ignore bool    // the rest of it
	carry  []byte  // beginning of an operation, or of the head of the redo, that has no end yet
	headed bool    // the head was read
	large  *large  // value that is coming; nil: none
	stop   stop    // what a reader without a writer has found, for the one with one

	seq  uint64   // of the last commit; of the meta page if there is none
	mark int64    // likewise
	tail wal.Tail // once the log was read to its end
}

// before is what a replayer goes back to when a commit turns out not to be there.
type before struct {
	seq   uint64
	mark  int64
	named int
	ops   int // bytes in the batch
}

// stop is the first commit that cannot be applied, and why; at 0: there is none.
type stop struct {
	at  wal.LSN
	err error
}

// A batch is a share of the cache. With the default it is all that a store of up to 128 MiB keeps
// in its log as a rule: then each page is found, changed and written once, however often the log
// comes back to it.
const batchFraction = 3

// maxBatch keeps where an operation begins in a batch within 32 bits, and a batch within an int of
// 32 bits.
const maxBatch = 1 << 30

func batchBytes(cache int64) int64 { return min(cache/batchFraction, maxBatch) }

// newReplayer is for the log after m, of at most logBytes.
func newReplayer(s *Store, m *pager.Meta, logBytes int64) *replayer {
	most := batchBytes(s.o.CacheBytes)
	return &replayer{
		s: s, meta: m, most: int(most), bytes: min(most, logBytes*mostCost),
		batch: newReplayBuffer(min(most, logBytes), !s.o.Inline), seq: m.Seq, mark: m.ClockMark,
	}
}

// part takes the next part of a commit. The clock is not looked at.
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
		p.giveUp() // who applies the log will tell
		p.ignore, err = true, nil
	case err != nil:
		err = p.badRecord(c.Commit, err)
	}
	return err
}

// begin begins a commit.
func (p *replayer) begin(lsn wal.LSN) {
	p.lsn, p.before = lsn, before{p.seq, p.mark, len(p.named), len(p.batch.ops)}
	p.seq++
	p.carry, p.headed, p.large, p.ignore = p.carry[:0], false, nil, false
}

// forget goes back to before the commit.
func (p *replayer) forget(why error) {
	if p.stop.at == 0 {
		p.stop = stop{p.lsn, why}
	}
	p.seq, p.mark, p.named = p.before.seq, p.before.mark, p.named[:p.before.named]
	if len(p.batch.ops) > p.before.ops {
		p.giveUp()
	}
}

// giveUp is for a reader without a writer, whose batch does not hold the log: it is read once more,
// by one with a writer.
func (p *replayer) giveUp() {
	p.free()
	p.partial = true
}

// take takes bytes of a commit.
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

// takeOps takes bytes that begin with an operation. The last one may have no end there.
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

// complete adds to carry until that is an operation, and gives the bytes behind it.
func (p *replayer) complete(b []byte) (rest []byte, err error) {
	had := len(p.carry)
	// Twice as much each time: what is looked at in vain is not more than the operation.
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

// scan goes through operations at the start of b, and says how many bytes and operations they are.
// errShortRedo: the one behind them has no end in b. Without a writer it notes what they name, and
// says with wal.ErrRefLost that leaves which they name are not what they were when the record was
// made.
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
			if err := p.countOps(r); err != nil {
				return n, ops, err
			}
		}
		n, ops = len(b)-len(rest), ops+1
	}
	return n, ops, nil
}

// countOps takes down what place an operation names.
func (p *replayer) countOps(r redo) error {
	p.named = append(p.named, r.extentPlace)
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

// checkLeafCount holds the number of leaves that the log names against the file: each is a page of
// its own, which claim would find out, and to read the same one again and again takes long.
func (p *replayer) checkLeafCount(r redo) error {
	most := uint64(p.s.pg.FileBytes()) / uint64(p.meta.PageSize)
	if p.laid += r.leaves; p.laid > most {
		return badfile.At(p.s.path+" (log)", -1, "it names more leaves than the file has pages, which are %d", most)
	}
	return nil
}

// claimPages takes the pages of all that the log names, and sees to it that no page is born in an
// epoch of theirs or before. It comes before anything is allocated, once all of the log was read.
func (p *replayer) claimPages() error {
	s := p.s
	for _, r := range p.named {
		if r.ref.Epoch == 0 || r.ref.Epoch >= pager.MaxEpoch-1 {
			return badfile.At(s.path+" (log)", -1, "it names pages of epoch %d", r.ref.Epoch)
		}
		if err := s.pg.Claim(r.ref, r.pages(s.pg.PageSize())); err != nil {
			return err
		}
		s.epoch = max(s.epoch, r.ref.Epoch+1)
	}
	return nil
}

// opCost is what an operation costs in a batch beside its bytes: a place in the order, and two
// heads of its key. With it, none costs more than mostCost times the bytes that it has in the log.
const (
	opCost   = 4 + 8 + 8
	mostCost = 8
)

// add adds whole operations to the batch, and applies that before it grows too large.
func (p *replayer) add(b []byte, ops int) error {
	for len(b) > 0 && !p.partial {
		n := prefixLen(b, p.most)
		cost := n + ops*opCost // for all of them with the first: they are of one part
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
// together, of one at least. What does not decode is left alone with all that comes after it.
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
