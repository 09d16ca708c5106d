package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
)

// Bytes of a block and of a sector. A disk keeps, loses or tears each block of a write for itself;
// a sector is never torn.
const (
	blockSize  = 4096
	sectorSize = 512
)

// untornBlocks are the first blocks, which are kept or lost as a whole: the superblocks of all
// file systems are there, which are written in place and of which no mount tries a second copy.
const untornBlocks = 32

// A cacheDisk is the content of a disk with a volatile write cache: it completes a write at once,
// and keeps it over a power cut for sure only once a flush has completed after it.
//
//	(1) durable is the content as of the last flush; pending are the writes since then, in order.
//	(2) cached is what they have made of the blocks that they touch: what a read sees.
//	(3) blocks of durable and cached are replaced, never changed: a copy of the map is a snapshot.
type cacheDisk struct {
	size int64 // in bytes; read-only

	mu      sync.Mutex // guards the fields below
	durable map[int64][]byte
	cached  map[int64][]byte
	pending []diskWrite
	armed   *powerCut
	broken  error // set once the disk serves nothing any more
	flushes int
}

// diskWrite is a write, or a part of one: it is within one block.
type diskWrite struct {
	block int64
	at    int // offset in the block
	data  []byte
}

// powerCut is a moment: right after so many writes, or before a flush that makes writes durable.
type powerCut struct {
	writes int
	flush  func(pending []diskWrite) bool // whether it is this flush; nil: it is after writes
	hear   func() error                   // called at that moment, while the disk stands still
	state  cutState
	done   chan error // of one
}

// has reports whether the moment is there, after a write or before a flush.
func (p *powerCut) has(flush bool, pending []diskWrite) bool {
	if flush != (p.flush != nil) {
		return false
	}
	if flush {
		return len(pending) > 0 && p.flush(pending)
	}
	p.writes--
	return p.writes <= 0
}

// flushOfMuch is before a flush of at least so many writes. Each flush that passes takes a
// sixteenth off that number: a flush of much is rare, and there may be none at all.
func flushOfMuch(least int) func(pending []diskWrite) bool {
	return func(pending []diskWrite) bool {
		if len(pending) >= least {
			return true
		}
		least = least * 15 / 16
		return false
	}
}

// flushOf is before a flush of a block with these bytes at an offset, or after so many flushes.
func flushOf(off int, mark string, most int) func(pending []diskWrite) bool {
	return func(pending []diskWrite) bool {
		most--
		return most <= 0 || slices.ContainsFunc(pending, func(w diskWrite) bool {
			return w.at == 0 && len(w.data) >= off+len(mark) && string(w.data[off:off+len(mark)]) == mark
		})
	}
}

// cutState is what a disk held when its power was cut.
type cutState struct {
	size    int64
	durable map[int64][]byte
	pending []diskWrite
}

// newCacheDisk reads the content of a file.
func newCacheDisk(file string) (d *cacheDisk, err error) {
	d = &cacheDisk{durable: map[int64][]byte{}, cached: map[int64][]byte{}}
	d.size, err = eachPart(file, func(part []byte, off int64) error {
		for i := 0; i < len(part); i += blockSize {
			b := part[i:min(i+blockSize, len(part))]
			if bytes.Count(b, []byte{0}) < len(b) {
				d.durable[(off+int64(i))/blockSize] = append(bytes.Clone(b),
					make([]byte, blockSize-len(b))...)
			}
		}
		return nil
	})
	return d, err
}

// block gives a block as reads see it; nil is zeros.
func (d *cacheDisk) block(no int64) []byte {
	if b := d.cached[no]; b != nil {
		return b
	}
	return d.durable[no]
}

// read fills b, with zeros behind the end.
func (d *cacheDisk) read(b []byte, off int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(b)
	for len(b) > 0 {
		at := int(off % blockSize)
		n := min(len(b), blockSize-at)
		if from := d.block(off / blockSize); from != nil {
			copy(b[:n], from[at:])
		}
		b, off = b[n:], off+int64(n)
	}
}

// write keeps a copy of b in the cache.
func (d *cacheDisk) write(b []byte, off int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if off < 0 || off+int64(len(b)) > d.size {
		return fmt.Errorf("write of %d bytes at %d of %d", len(b), off, d.size)
	}
	for len(b) > 0 {
		w := diskWrite{block: off / blockSize, at: int(off % blockSize)}
		n := min(len(b), blockSize-w.at)
		w.data = bytes.Clone(b[:n])
		d.pending = append(d.pending, w)
		d.cached[w.block] = w.over(d.block(w.block))
		b, off = b[n:], off+int64(n)
	}
	d.cut(false)
	return nil
}

// over gives what a write makes of a block.
func (w diskWrite) over(old []byte) []byte {
	b := make([]byte, blockSize)
	copy(b, old)
	copy(b[w.at:], w.data)
	return b
}

// flush makes all pending writes durable.
func (d *cacheDisk) flush() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut(true)
	maps.Copy(d.durable, d.cached)
	clear(d.cached)
	d.pending = nil
	d.flushes++
}

// cut is called after each write and before each flush; it takes the state if the moment is there.
func (d *cacheDisk) cut(flush bool) {
	p := d.armed
	if p == nil || !p.has(flush, d.pending) {
		return
	}
	p.state = cutState{size: d.size, durable: maps.Clone(d.durable), pending: slices.Clone(d.pending)}
	d.armed = nil
	p.done <- p.hear()
}

// cutAt waits until the moment of a cut has come. stop ends the wait.
func (d *cacheDisk) cutAt(p *powerCut, stop <-chan struct{}) (cutState, error) {
	p.done = make(chan error, 1)
	d.mu.Lock()
	if d.broken != nil {
		defer d.mu.Unlock()
		return cutState{}, d.broken
	}
	d.armed = p
	d.mu.Unlock()
	select {
	case err := <-p.done:
		return p.state, err
	case <-stop:
		return cutState{}, errInterrupted
	}
}

// fail ends all service: the cut that is waited for never comes.
func (d *cacheDisk) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken = err
	if d.armed != nil {
		d.armed.done <- err
		d.armed = nil
	}
}

// cutWays are what a power cut keeps of the pending writes; those that tell most are there twice.
var cutWays = []string{"none", "all", "prefix", "prefix", "subset", "subset", "torn", "torn"}

// cutLoss counts what a cut has made of the pending writes, a block each.
type cutLoss struct {
	Pending int `json:"pending"`
	Lost    int `json:"lost"`
	Torn    int `json:"torn"`
}

func (l *cutLoss) add(m cutLoss) {
	l.Pending += m.Pending
	l.Lost += m.Lost
	l.Torn += m.Torn
}

// lose gives the writes that a power cut has kept, or what it has kept of them.
func (s cutState) lose(way string, rnd *rand.Rand) (kept []diskWrite, loss cutLoss) {
	share := rnd.Float64() // of the writes that a subset keeps
	prefix := rnd.IntN(len(s.pending) + 1)
	loss.Pending = len(s.pending)
	for i, w := range s.pending {
		var keep bool
		switch way {
		case "all":
			keep = true
		case "prefix":
			keep = i < prefix
		case "subset", "torn":
			keep = rnd.Float64() < share
		}
		sectors := len(w.data) / sectorSize
		if way == "torn" && keep && w.block >= untornBlocks && sectors > 1 && rnd.IntN(2) == 0 {
			w.data = w.data[:sectorSize*(1+rnd.IntN(sectors-1))]
			loss.Torn++
		}
		if keep {
			kept = append(kept, w)
		} else {
			loss.Lost++
		}
	}
	return kept, loss
}

// image writes what the disk holds after the cut to a file, with holes for zeros.
func (s cutState) image(name string, kept []diskWrite) (err error) {
	blocks := maps.Clone(s.durable)
	for _, w := range kept {
		blocks[w.block] = w.over(blocks[w.block])
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, no := range slices.Sorted(maps.Keys(blocks)) {
		if _, err := f.WriteAt(blocks[no], no*blockSize); err != nil {
			return err
		}
	}
	return f.Truncate(s.size)
}
