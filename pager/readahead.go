package pager

import "sync/atomic"

// The system reads nothing ahead of a fault in the map of the main file: see vfs.File.Map. What is
// worth reading ahead depends on the memory that the process may use (Options.Memory):
//
//   - The file and the frames fit: pages that are read stay. So the first look at a place of the
//     file reads a block around it, however the pages are looked for.
//   - They do not fit: once memory is full, each page that is read evicts another one. Blocks are read
//     until the session has read and written half as much as the process may use. After that, only
//     pages that a walk along the leaves is going to look at are read ahead, one by one or in runs:
//     see ReadAhead.

// readAhead notes which blocks of the file were read ahead since it was opened.
type readAhead struct {
	asked pageSet // of numbers of blocks
	bytes atomic.Int64
}

const (
	// aheadBlock is the least that is read around a page, in bytes.
	aheadBlock = 128 << 10
	// mostAheadBlocks is the most: a read of 2 MiB takes a slow disk a few hundredths of a second.
	mostAheadBlocks = 16
	// aheadGrowth is the part of what was read so far that the next block has: a session that reads
	// little reads little in vain, and one that reads all of a file does so in large pieces.
	aheadGrowth = 16
)

// Scarce reports whether the file and the frames do not fit into the memory that the process may
// use, with a quarter of it for all else.
func (p *Pager) Scarce() bool {
	bytes := int64(p.end.Load())*int64(p.pageSize) + p.o.Cache
	return p.o.Memory > 0 && bytes > p.o.Memory-p.o.Memory/4
}

// TrimFrames gives memory of unused frames back to the system, if memory is scarce: the page cache
// has more use for it. A checkpoint leaves most frames unused.
func (p *Pager) TrimFrames() {
	if p.Scarce() {
		p.arena.trim()
	}
}

// fillShare is the part of the memory that the session fills with blocks, where memory is scarce.
const fillShare = 2

// filling reports whether the pages that this session reads evict none of its own yet, where memory
// is scarce. Where reads at random follow Open, single pages take tens of seconds to fill it.
func (p *Pager) filling() bool {
	used := p.ahead.bytes.Load() + int64(p.pagesWritten.Load())*int64(p.pageSize)
	return used < p.o.Memory/fillShare
}

// readAround is called before the first look at a page through the map. It has the block that the
// page lies in read, unless that was done before.
func (p *Pager) readAround(id Pgid) {
	off := int64(id) * int64(p.pageSize)
	block := off / aheadBlock
	if p.ahead.asked.has(Pgid(block)) || p.Scarce() && !p.filling() {
		return
	}
	n := int64(1)
	for enough := p.ahead.bytes.Load() / aheadGrowth; n < mostAheadBlocks && n*aheadBlock < enough; {
		n *= 2
	}
	from := block / n * n
	for i := from; i < from+n; i++ {
		p.ahead.asked.add(Pgid(i))
	}
	p.ahead.bytes.Add(n * aheadBlock)
	end := min((from+n)*aheadBlock, int64(p.end.Load())*int64(p.pageSize))
	p.fileAhead(from*aheadBlock, end-from*aheadBlock)
}

// fileAhead has the system read bytes of the file through the map, if they lie in one view.
func (p *Pager) fileAhead(off, n int64) {
	if v, err := p.view(uint64(off) / mapChunkBytes); err == nil && off%mapChunkBytes+n <= int64(len(v)) {
		p.file.ReadAhead(v[off%mapChunkBytes:][:n])
	}
}

// ReadsAhead reports whether ReadAhead and ReadSoon do anything: where memory suffices, readAround
// does.
func (p *Pager) ReadsAhead() bool { return p.mapped && p.Scarce() }

// ReadAhead has pages read that a walk of a snapshot whose newest checkpoint is base is going to
// look at soon, in this order. It does nothing where larger blocks are read: see ReadsAhead.
// Whether the disk is needed at all is found out by the last of them: a walk through pages that are
// in memory passes one in less time than a call of the system takes.
func (p *Pager) ReadAhead(refs []Ref, base Epoch) {
	if !p.ReadsAhead() {
		return
	}
	var run pageRange
	sampled := false
	for i := len(refs) - 1; i >= 0; i-- {
		id, ok := p.underneath(refs[i], base)
		if !ok {
			continue
		}
		if !sampled {
			if b, err := p.inFile(id, p.pageSize); err != nil || p.file.Resident(b) {
				return
			}
			sampled = true
		}
		switch {
		case id == run.to && run.to > run.from:
			run.to++
		case id+1 == run.from:
			run.from--
		default:
			p.readRun(run)
			run = pageRange{id, id + 1}
		}
	}
	p.readRun(run)
}

// ReadSoon is ReadAhead of one page, wherever that lies.
func (p *Pager) ReadSoon(ref Ref, base Epoch) {
	if !p.ReadsAhead() {
		return
	}
	if id, ok := p.underneath(ref, base); ok {
		p.readRun(pageRange{id, id + 1})
	}
}

func (p *Pager) readRun(r pageRange) {
	if r.to > r.from {
		p.fileAhead(int64(r.from)*int64(p.pageSize), int64(r.to-r.from)*int64(p.pageSize))
	}
}

// underneath is the page of the file that a look at ref leads to, if it does.
func (p *Pager) underneath(ref Ref, base Epoch) (id Pgid, ok bool) {
	if s := p.table.peek(ref.Pgid); s != nil && ref.Epoch > base {
		if atomic.LoadPointer(&s.dirty) != nil {
			return 0, false
		}
		if f := atomic.LoadPointer(&s.delta); f != nil {
			ref, _, _ = decodeDelta(f)
		}
	}
	return ref.Pgid, p.inBounds(ref, 1) == nil
}
