package pager

import "sync/atomic"

// The system reads nothing ahead of a fault in the map of the main file: see vfs.File.Map. The
// right amount of read-ahead depends on the memory that the process may use (Options.Memory):
//
//   - The file and the frames fit: pages that are read stay. So the first read of a page reads the
//     block around it, for each access pattern.
//   - They do not fit: once memory is full, each read evicts another page. Blocks are read until
//     the session has filled seven eighths of that memory. After that, ReadAhead reads only the
//     next pages of a leaf scan, one by one or in runs.

// readAhead records the blocks of the file that were read ahead since it was opened.
type readAhead struct {
	blocks pageSet      // block numbers
	bytes  atomic.Int64 // in them
	// absent are the pages of those blocks that were not in memory then, and have not been read ahead
	// since.
	absent pageSet
}

const (
	// aheadBlock is the minimum read around a page, in bytes.
	aheadBlock = 128 << 10
	// mostAheadBlocks is the maximum: a read of 2 MiB takes a slow disk a few hundredths of a
	// second.
	mostAheadBlocks = 16
	// aheadGrowth is the fraction of the bytes read so far that the next block has: a session that
	// reads little wastes little, and one that reads all of a file reads large blocks.
	aheadGrowth = 16
)

// Scarce reports whether the file and the frames do not fit into the memory that the process may
// use, with a quarter of it for all else.
func (f *mainFile) Scarce() bool {
	bytes := int64(f.end.Load())*int64(f.pageSize) + f.o.Cache
	return f.o.Memory > 0 && bytes > f.o.Memory-f.o.Memory/4
}

// memoryRest is the fraction of the memory that reads of blocks leave to all else.
const memoryRest = 8

// inBlocks reports whether blocks are read: if memory is scarce, as long as the session's reads
// evict none of its own pages. If random reads follow Open, filling the memory with single pages
// takes tens of seconds.
func (r *Reader) inBlocks() bool {
	used := r.ahead.bytes.Load() + int64(r.pagesWritten.Load())*int64(r.pageSize) + r.pool.FrameBytes()
	return !r.Scarce() || used < r.o.Memory-r.o.Memory/memoryRest
}

// readAround precedes the first read of a page through the map. It reads the block of the page,
// unless an earlier call did, or the page was in memory when an earlier call asked for the block: a
// request costs more than the question, above all for the holes of a file, which it fills with pages.
func (r *Reader) readAround(id Pgid) {
	if !r.wantsBlock(id) || !r.inBlocks() {
		return
	}
	block, n := r.blockOf(id), Pgid(1)
	for size := r.ahead.bytes.Load() / aheadGrowth; n < mostAheadBlocks && int64(n)*aheadBlock < size; {
		n *= 2
	}
	from := block / n * n
	looked := r.ahead.blocks.has(block)
	for i := from; i < from+n; i++ {
		r.look(i)
	}
	if !looked && !r.ahead.absent.has(id) {
		return
	}
	pages := Pgid(aheadBlock / r.pageSize)
	for i := from * pages; i < (from+n)*pages; i++ {
		r.ahead.absent.remove(i)
	}
	end := min(int64(from+n)*aheadBlock, int64(r.end.Load())*int64(r.pageSize))
	r.fileAhead(int64(from)*aheadBlock, end-int64(from)*aheadBlock)
}

func (r *Reader) blockOf(id Pgid) Pgid { return id / Pgid(aheadBlock/r.pageSize) }

// wantsBlock reports whether a read of the page may wait for the disk, as far as is known.
func (r *Reader) wantsBlock(id Pgid) bool {
	return !r.ahead.blocks.has(r.blockOf(id)) || r.ahead.absent.has(id)
}

// look asks which pages of a block are in memory. A file that this process could not write seems to
// be all there.
func (r *Reader) look(block Pgid) {
	if r.ahead.blocks.has(block) {
		return
	}
	pages := Pgid(aheadBlock / r.pageSize)
	first, units := block*pages, uint64(0)
	if n := min(first+pages, Pgid(r.end.Load())); n > first && !r.o.ReadOnly {
		if b, err := r.inFile(first, int(n-first)*r.pageSize); err == nil {
			units = r.file.Resident(b, r.pageSize)
		}
	}
	for i := range pages {
		if units>>i&1 == 0 {
			r.ahead.absent.add(first + i)
		}
	}
	r.ahead.blocks.add(block)
	r.ahead.bytes.Add(aheadBlock)
}

// ReadsAhead reports whether ReadAhead has an effect: not if all blocks were read.
func (v View) ReadsAhead() bool {
	r := v.r
	return r.mapped && (r.ahead.bytes.Load() < int64(r.end.Load())*int64(r.pageSize) || r.Scarce())
}

// ReadAhead prefetches pages that a scan will read soon, in this order. While blocks are read it
// reads theirs, so that the disk has several of them to read at a time.
func (v View) ReadAhead(refs []Ref) {
	if !v.ReadsAhead() || !v.wantsSome(refs) {
		return
	}
	blocks := v.r.inBlocks()
	var run pageRange
	for i := range refs {
		id, ok := v.r.underneath(refs[i], v.base)
		switch {
		case !ok:
		case blocks:
			v.r.readAround(id)
		case id == run.to && run.to > run.from:
			run.to++
		case id+1 == run.from:
			run.from--
		default:
			v.r.readRun(run)
			run = pageRange{id, id + 1}
		}
	}
	v.r.readRun(run)
}

// aheadSample is the number of pages of which wantsSome looks at one.
const aheadSample = 16

// wantsSome samples whether pages are to be read: a scan passes a page in memory in less time than
// a system call takes.
func (v View) wantsSome(refs []Ref) bool {
	blocks := v.r.inBlocks()
	for i := len(refs) - 1; i >= 0; i -= aheadSample {
		id, ok := v.r.underneath(refs[i], v.base)
		if !ok {
			continue
		}
		if blocks {
			ok = !v.r.wantsBlock(id)
		} else if b, err := v.r.inFile(id, v.r.pageSize); err == nil {
			ok = v.r.file.Resident(b, len(b)) == 1
		}
		if !ok {
			return true
		}
	}
	return false
}

// ReadSoon prefetches one page, unless blocks are read.
func (v View) ReadSoon(ref Ref) {
	if !v.r.mapped || v.r.inBlocks() {
		return
	}
	if id, ok := v.r.underneath(ref, v.base); ok {
		v.r.readRun(pageRange{id, id + 1})
	}
}

func (r *Reader) readRun(run pageRange) {
	if run.to > run.from {
		r.fileAhead(int64(run.from)*int64(r.pageSize), int64(run.to-run.from)*int64(r.pageSize))
	}
}

// underneath returns the page of the file that a read of ref needs; ok is false if there is none.
func (r *Reader) underneath(ref Ref, base Epoch) (id Pgid, ok bool) {
	if s := r.pool.table.peek(ref.Pgid); s != nil && ref.Epoch > base {
		if atomic.LoadPointer(&s.dirty) != nil {
			return 0, false
		}
		if f := atomic.LoadPointer(&s.delta); f != nil {
			ref, _, _ = decodeDelta(f)
		}
	}
	return ref.Pgid, r.inBounds(ref, 1) == nil
}
