package wal

import (
	"bytes"

	"github.com/ebbkv/ebb/internal/badfile"
)

// A commit may be larger than memory, and may lack its last part. So Replay finds the end of a
// commit before it delivers its first part. It keeps views of parts in the loaded segment, and
// copies those of a small commit that continues in the next segment. Of a larger commit it keeps
// nothing: once its end is found, with no compensation record behind it, Replay reads its segments
// again.

// A commit that continues in the next segment is kept in memory if its parts have at most
// SegmentSize/keptFraction bytes.
const keptFraction = 4

// mostParts bounds the kept parts of a commit: small parts may be many.
const mostParts = 1024

// commit is what Replay knows of one commit.
type commit struct {
	open  bool // its first part was read, its last part not yet
	held  bool // its last part was read: a compensation record may follow
	first LSN  // its first record
	last  LSN  // its last record, if held
	end   LSN  // end of that record, or start of the next segment; if held

	parts [][]byte
	own   int  // the first own parts are copies, not views of a segment
	again bool // parts is empty: the segments are read again
}

func (c *commit) add(payload []byte) {
	if !c.again {
		c.parts = append(c.parts, payload)
		c.again = len(c.parts) > mostParts
	}
	if c.again {
		c.parts, c.own = nil, 0
	}
}

// addPart adds a data record, a part of a commit.
func (p *replay) addPart(img *segmentImage, r record, pos int64, end LSN) error {
	c := &p.commit
	first, last := r.flags&partFirst != 0, r.flags&partLast != 0
	if first {
		if err := p.deliver(); err != nil {
			return err
		}
		*c = commit{open: true, first: r.lsn, parts: c.parts[:0]}
	} else if !c.open {
		return badfile.At(img.file, pos,
			"record at LSN %d goes on with a commit that has no beginning", r.lsn)
	}
	if c.add(r.payload); last {
		c.open, c.held, c.last, c.end = false, true, r.lsn, end
	}
	return nil
}

// deliver delivers the held commit: no compensation record follows it.
func (p *replay) deliver() error {
	c := &p.commit
	if !c.held {
		return nil
	}
	p.delivered = c.last
	err := error(nil)
	if c.again {
		err = p.readAgain()
	}
	for i, b := range c.parts {
		if err == nil {
			err = p.fn(Part{Payload: b, Commit: c.first, First: i == 0, Last: i == len(c.parts)-1})
		}
	}
	if err == nil {
		p.setEnd(c.end)
		p.tail.Commits++
	}
	*c = commit{parts: c.parts[:0]}
	return err
}

// readAgain reads the parts of the held commit from the segments and delivers them.
func (p *replay) readAgain() error {
	c := &p.commit
	m := newImageBuffer()
	defer m.Free()
	number, off := p.f.opts.at(c.first)
	for i := p.f.index(number); i < len(p.f.segments); i++ {
		img, err := p.f.load(i, m)
		if err != nil {
			return err
		}
		for {
			pos, found := img.nextRecord(off)
			if !found {
				return badfile.At(img.file, off, "no record, where one was when it was read before")
			}
			r, err := img.record(pos)
			if err != nil {
				return badfile.At(img.file, pos, "%v, which was right when it was read before", err)
			}
			if r.kind == typeSeal {
				break
			}
			part := Part{Payload: r.payload, Commit: c.first}
			part.First, part.Last = r.lsn == c.first, r.lsn == c.last
			if err := p.fn(part); err != nil || part.Last {
				return err
			}
			off = pos + r.size()
		}
		off = firstRecord
	}
	return badfile.At(p.f.opts.name(number), -1,
		"the commit at LSN %d had an end when it was read before", c.first)
}

// leaves makes the commit independent of its segment's image: the next segment begins at end.
func (p *replay) leaves(end LSN) {
	c := &p.commit
	c.end = end
	size := int64(0)
	for _, b := range c.parts {
		size += int64(len(b))
	}
	if size > p.f.opts.SegmentSize/keptFraction {
		c.parts, c.own, c.again = nil, 0, true
	}
	for ; c.own < len(c.parts); c.own++ {
		c.parts[c.own] = bytes.Clone(c.parts[c.own])
	}
}
