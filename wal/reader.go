package wal

import (
	"errors"
	"fmt"

	"github.com/ebbkv/ebb/internal/badfile"
)

// Tail describes the end of a log.
type Tail struct {
	// end of the last complete commit, or, if no part of one comes after, the start of a later
	// segment
	End   LSN
	Bytes int64 // of records from the start to End, padding included
	// bytes behind End that look like records of this log: torn, behind a gap, or parts of a commit
	// that has no end
	Dropped int64
	Commits int
}

// A Part is a piece of the payload of a complete commit, cut as it was appended.
type Part struct {
	Payload     []byte // valid until the call returns
	Commit      LSN    // position of the commit's first record
	First, Last bool   // of the commit
}

// Replay calls fn with each part of each complete commit from start on, in order. It finds the end
// of a commit before it delivers the first part, and never delivers any part of a commit without an
// end, or of one that a compensation record cancels. The memory for pending parts is bounded:
// Replay reads the segments of a larger commit again. An error of fn ends the replay and is
// returned unchanged. If it wraps ErrRefLost the commit refers to lost bytes (see
// Log.AddExternalRef): the records then end before its last one.
//
// Where the records end, at a position X behind the last valid one, a crash has torn them off or
// they are damaged. Replay reports damage, a *badfile.Error, if there is evidence that the log was
// durable beyond X:
//
//   - a later record, of this segment or a later one, says that everything up to Y > X is durable;
//   - a durability hint, of this segment or a later one, says so;
//   - durable, the highest position that the caller has on record as durable, is past X.
//
// A segment with an end record whose successor is missing is damage too: the successor is made
// durable before the end record is written. Otherwise the end is a torn tail or the clean end. A
// read that fails is neither; its error is returned.
func (f *ScanResult) Replay(start, durable LSN, fn func(Part) error) (Tail, error) {
	i, err := f.startIndex(start)
	if err != nil {
		return Tail{}, err
	}
	p := replay{f: f, fn: fn, start: start, tail: Tail{End: start}}
	m := newImageBuffer()
	defer m.Free()
	for at := start; ; i++ {
		img, err := f.load(i, m)
		if err != nil {
			return p.tail, err
		}
		end, sealed, why, err := p.readSegment(img, at)
		if err == nil && !sealed {
			err = p.deliver()
		}
		switch {
		case errors.Is(err, ErrRefLost):
			return p.endBeforeLostRef(f, durable, m, err)
		case err != nil:
			return p.tail, err
		case !sealed:
			return p.finish(f, i, img, end, durable, why)
		case i+1 == len(f.segments) || f.segments[i+1].number != img.number+1:
			return p.tail, badfile.At(f.opts.name(img.number+1), -1,
				"segment %d is sealed, segment %d is missing or damaged", img.number, img.number+1)
		}
		at = f.opts.start(img.number + 1)
		p.segmentGaps += at - end
		if p.leaves(at); !p.commit.open && !p.commit.held {
			p.setEnd(at)
		}
	}
}

// ErrRefLost is an error of Replay's fn, at any part of a commit: a crash has lost the bytes that a
// commit refers to, or they have been damaged since.
var ErrRefLost = errors.New("what the commit refers to is not there")

// endBeforeLostRef ends the replay before the last record of the commit that was delivered last:
// evidence that the log was durable beyond it is evidence that the referenced bytes were, too. No
// image in m is needed any more.
func (p *replay) endBeforeLostRef(f *ScanResult, durable LSN, m *imageBuffer, why error) (Tail, error) {
	p.commit = commit{}
	number, _ := f.opts.at(p.delivered)
	i := f.index(number)
	img, err := f.load(i, m)
	if err != nil {
		return p.tail, err
	}
	return p.finish(f, i, img, p.delivered, durable, why)
}

// finish ends the replay at end, in segment i; why says what is wrong with the bytes there.
func (p *replay) finish(f *ScanResult, i int, img *segmentImage, end, durable LSN, why error) (Tail, error) {
	behind, err := f.classifyTail(i, img, end, durable, why)
	if err == nil {
		p.tail.Dropped = img.claimedBytes(end, p.tail.End) + behind
	}
	return p.tail, err
}

type replay struct {
	f      *ScanResult
	fn     func(Part) error
	start  LSN
	tail   Tail
	prev   LSN    // last record; meaningful once any is set
	any    bool   // a record was read
	commit commit // being read, or read last

	delivered   LSN // last record of the commit delivered last
	segmentGaps LSN // bytes between the segments' records
}

// setEnd moves the end of the log.
func (p *replay) setEnd(at LSN) {
	p.tail.End, p.tail.Bytes = at, int64(at-p.start-p.segmentGaps)
}

// readSegment reads the records of one segment from at on. It returns the end of the last valid
// one, and either sealed or what is wrong with the bytes behind it.
func (p *replay) readSegment(img *segmentImage, at LSN) (end LSN, sealed bool, why error, err error) {
	end = at
	off := int64(at - img.base)
	for {
		pos, found := img.nextRecord(off)
		if !found {
			return end, false, errors.New("no record"), nil
		}
		r, err := img.record(pos)
		if err != nil {
			return end, false, err, nil
		}
		if err := p.checkLink(img, r, pos); err != nil {
			return end, false, err, nil
		}
		p.prev, p.any = r.lsn, true
		if r.kind == typeSeal {
			return end, true, nil, nil
		}
		off = pos + r.size()
		end = img.base + LSN(off)
		if r.kind == typeCompensation {
			if !p.commit.held {
				return end, false, nil, badfile.At(img.file, pos,
					"record at LSN %d takes back a commit that is not before it", r.lsn)
			}
			p.commit = commit{}
			p.setEnd(end)
			continue
		}
		if err := p.addPart(img, r, pos, end); err != nil {
			return end, false, nil, err
		}
	}
}

// checkLink says whether r, a valid record at pos, is the next one.
func (p *replay) checkLink(img *segmentImage, r record, pos int64) error {
	if p.any {
		if r.prev != p.prev {
			return fmt.Errorf("record follows LSN %d, the last one is at %d", r.prev, p.prev)
		}
		return nil
	}
	// The record before the first one is gone or was never there. Still its position says that
	// nothing is missing between start and here, and it has to be in the right segment.
	if r.prev >= p.start {
		return fmt.Errorf("record follows LSN %d, which is missing", r.prev)
	}
	if pos == firstRecord && r.prev != 0 && uint64(r.prev)/uint64(img.size) != img.number-1 {
		return fmt.Errorf("record follows LSN %d, which is not in segment %d", r.prev, img.number-1)
	}
	return nil
}

// classifyTail classifies the end of the records at end, in segment i. nil: it is a torn tail or
// the clean end, and behind counts the bytes of later segments with records.
func (f *ScanResult) classifyTail(
	i int, img *segmentImage, end, durable LSN, why error,
) (behind int64, err error) {
	bad := func(format string, args ...any) (int64, error) {
		off := int64(end - img.base)
		return 0, badfile.At(img.file, off, "log ends at LSN %d (%v), but %s", end, why,
			fmt.Sprintf(format, args...))
	}
	if durable > end {
		return bad("the store was durable up to LSN %d", durable)
	}
	if synced, ok := img.hint(); ok && synced > end {
		return bad("the segment's hint says that LSN %d is durable", synced)
	}
	if r, ok := img.durabilityEvidence(int64(end-img.base), end); ok {
		return bad("the record at LSN %d says that LSN %d is durable", r.lsn, r.synced)
	}
	m := newImageBuffer()
	defer m.Free()
	for j := i + 1; j < len(f.segments); j++ {
		limit := f.segments[j].size
		if j >= len(f.segments)-f.emptyTail {
			limit = firstRecord // for its hint: Chain has read it, and it holds no record
		}
		later, err := f.read(f.segments[j], limit, m)
		if err != nil {
			return 0, err
		}
		if r, ok := later.durabilityEvidence(firstRecord, end); ok {
			return bad("the record at LSN %d, in segment %d, says that LSN %d is durable", r.lsn,
				later.number, r.synced)
		}
		if synced, ok := later.hint(); ok && synced > end {
			return bad("the hint of segment %d says that LSN %d is durable", later.number, synced)
		}
		behind += later.recordBytes()
	}
	return behind, nil
}
