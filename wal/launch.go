package wal

import (
	"fmt"

	"github.com/ebbkv/ebb/internal/invariant"
	"github.com/ebbkv/ebb/internal/vfs"
)

// Who knows what a commit will say before it has been carried out may have the disk write it meanwhile: Launch, then the work, then Land.
// Should the work fail, Void takes back what the log says, and the commit after it comes as if there had never been one.
//
//	crash ...                          the segment holds                  recovery
//	between Launch and Land            the record, whole or torn or not   finds the commit, or not: nobody was told anything
//	after Land                         the record                         finds the commit
//	after Void, before it is durable   the record, the void or not        finds the commit unless the void is there: nobody was told
//	                                                                      that it failed
//	after that                         both                               passes over it

// Launch has the commits up to end, the end of the log, written and made durable as Wait does, but returns when the disk is at
// work. The caller comes back soon, with Land of what it got: until then nobody hears of what is written later. It is nil, and nothing has
// happened, if Launch would have to wait itself: for others who are at work on the log, or because nothing can be written past the page
// cache now. Then Wait will do.
func (l *Log) Launch(end LSN) *Launched {
	l.mu.Lock()
	if l.leading || l.inCommit || len(l.queue) != 1 || end != l.End() || l.refuse() != nil || !l.straight(l.queue[0]) || !l.mayFly(true) ||
		!sharable(l.queue[0], true) {
		l.mu.Unlock()
		return nil
	}
	f := l.depart(l.take(true))
	l.mu.Unlock()
	l.finishRun(f.group)
	return &Launched{f, f.run.seg.past.StartWriteAt(f.run.buf, f.run.offset())}
}

// Launched is a group that Launch has sent.
type Launched struct {
	flight *flight
	begun  vfs.Pending
}

// Land waits for the disk, and tells all who wait for what was launched. It is called once.
func (l *Log) Land(sent *Launched) {
	f, fate := sent.flight, whole
	err := vfs.WriteRest(f.run.seg.past, sent.begun, f.run.buf, f.run.offset())
	if err != nil {
		fate, err = partly, f.run.failed(err)
	}
	l.mu.Lock()
	told := l.land(f, fate, err)
	l.dismiss(f, l.over(), told)
}

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
	r.commits++
	r.end = l.pos
	l.end.Store(uint64(l.pos))
	return l.End(), nil
}

// held is a commit that replay has read, and that the next record may void.
type held struct {
	any     bool
	payload []byte
	own     bool // payload is no view of a segment
	first   LSN
	end     LSN
}

// settle hands on the commit that is held: nothing voids it any more.
func (p *replay) settle() error {
	h := p.held
	if p.held = (held{}); !h.any {
		return nil
	}
	if err := p.fn(h.payload, h.first); err != nil {
		return err
	}
	p.tail.End = h.end
	p.tail.Commits++
	return nil
}

// void drops the commit that is held.
func (p *replay) void(r record, end LSN) error {
	if !p.held.any || p.open {
		return fmt.Errorf("record at LSN %d takes back a commit that is not before it", r.lsn)
	}
	p.held = held{}
	p.tail.End = end
	return nil
}

// keep makes the commit that is held independent of its segment: the next one begins at end.
func (p *replay) keep(end LSN) {
	h := &p.held
	if h.end = end; h.any && !h.own {
		h.payload, h.own = append([]byte(nil), h.payload...), true
	}
}
