package wal

import (
	"bytes"
	"fmt"

	"github.com/ebbkv/ebb/internal/invariant"
)

// A void is a record that takes back the commit before it. Replay holds each commit until it has seen that none follows.

// Void takes the last commit back, whether it is in the file or not, and returns the position to give to Wait: what was taken back is not
// found any more once that is durable. Nothing was appended since. Errors are those of Append, and say nothing about the
// commit.
func (l *Log) Void() (LSN, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inCommit {
		invariant.Fail("wal: a commit is voided in the middle of the next one")
	}
	for {
		if err := l.refuse(); err != nil {
			return 0, err
		}
		if _, ok := l.part(0); ok {
			break
		}
		if err := l.turn(l.prepareBound); err != nil {
			return 0, err
		}
	}
	r := l.tail()
	l.encode(r, record{kind: typeVoid})
	r.end = l.pos
	l.ends(l.pos)
	return l.End(), nil
}

// Revocable says that there is room for a commit of n bytes and for the void that may have to follow, in segments that are there: neither
// asks a disk that may be full.
func (l *Log) Revocable(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n += (n/maxPart + 2) * 2 * recHeader // a header for each part, and what may lie before one
	fits := func(from, limit LSN) bool {
		// A group may be padded to that when it is written: the one before the commit meanwhile, and the commit itself.
		return alignUp(alignUp(from, pageUnit)+LSN(n), pageUnit)+recHeader <= limit
	}
	return fits(l.pos, l.live[len(l.live)-1].limit()) || l.spare != nil && fits(l.spare.start(), l.spare.limit())
}

// held is a commit that replay has read, and that the next record may void.
type held struct {
	any     bool
	payload []byte
	own     bool // payload is no view of a segment
	first   LSN
	last    LSN // its last record
	end     LSN
}

// settle hands on the commit that is held: nothing voids it any more.
func (p *replay) settle() error {
	h := p.held
	if p.held = (held{}); !h.any {
		return nil
	}
	p.settled = h.last
	if err := p.fn(h.payload, h.first); err != nil {
		return err
	}
	p.ended(h.end)
	p.tail.Commits++
	return nil
}

// void drops the commit that is held.
func (p *replay) void(r record, end LSN) error {
	if !p.held.any || p.open {
		return fmt.Errorf("record at LSN %d takes back a commit that is not before it", r.lsn)
	}
	p.held = held{}
	p.ended(end)
	return nil
}

// keep makes the commit that is held, if one is, independent of its segment: the next one begins at end.
func (p *replay) keep(end LSN) {
	h := &p.held
	if !h.any {
		return
	}
	if h.end = end; !h.own {
		h.payload, h.own = bytes.Clone(h.payload), true
	}
}
