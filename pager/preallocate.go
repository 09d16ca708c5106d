package pager

import (
	"errors"
	"fmt"

	"github.com/ebbkv/ebb/internal/vfs"
)

// The file grows in steps: by an eighth of itself, or by several times what does not fit, within
// these bounds, so that its size rarely changes: the next sync has to make that durable too.
const (
	growthFraction = 8
	minGrowth      = 256 << 10
	maxGrowth      = 64 << 20
	growthAtOnce   = 8
)

// preallocation makes the file longer before anybody needs it. While a checkpoint writes to the
// file, or the disk is busy with the log, the system may take milliseconds for a step, and whoever
// takes a page holds the writer lock. All of it belongs to the holder of the writer lock, but for
// the file's own growing, which a goroutine does that ends with it. It is begun when half a step is
// left, and not for small files, so that who puts little, or frees, does not have it made for
// nothing.
//
// Nobody counts on the new room before it is taken over, by EndPreallocation: until then a crash,
// or a failure, leaves a file that is longer than its pages, or one that is not.
type preallocation struct {
	from int64      // bytes in use at which there is something to do; at most fileSize
	room int64      // bytes behind those in use that Room was asked for last
	full bool       // there was no room for a step when somebody tried last: nobody tries ahead
	to   chan int64 // of capacity 1: the size that the goroutine has made, or 0; nil: there is none
}

// ensureFileSpace makes sure that the file has room for n more pages at its end, before any byte is
// written there: a full disk fails the call that asked, and nothing else. What has to be left of
// free pages and of room is counted by behind.
func (p *Pager) ensureFileSpace(n uint64) error { return p.reserveBehind(n, p.behind(n, 0)) }

// keep makes sure that n pages may be taken, free ones as far as there are so many: what has to be
// left is there without them, or there is room for it at the end of the file.
func (p *Pager) keep(n uint64) error {
	free := p.space.free()
	if free >= n &&
		free-n > p.space.end/keepFraction+leastKeep+p.leafRunPages.since+p.leafRunPages.before+p.treeTableReserve {
		return nil // more than slack can be
	}
	behind := p.behind(n, min(n, free))
	if behind == 0 {
		return nil
	}
	return p.reserveBehind(0, behind)
}

// The slack without what laid pages and the tree table need is less than this part of the file and
// that many pages: of a group of 64 pages, the smallest, it is one and a half.
const (
	keepFraction = 32
	leastKeep    = 64
)

// behind is how many pages the file must have room for at its end if n are taken now, of which have
// are free ones: the others, and those that have to be left and are not free. What has to be left
// is the slack for a put, for a deletion what the checkpoint needs that gives back what it frees,
// and nothing for that checkpoint. Whether it is free or behind the end makes no difference: who
// counts on it takes pages one by one.
func (p *Pager) behind(n, have uint64) uint64 {
	left := uint64(0)
	switch {
	case !p.overdraft:
		if left = p.reserve(n - have); have == n {
			left -= forDeletes - leastForDeletes
		}
	case !p.capturing:
		left = p.tableRoom() + p.freeMapReserve(n-have+p.tableRoom())
	}
	free := p.space.free()
	return n - have + left - min(left, free-min(free, have))
}

// reserveBehind makes sure that the file has room for n pages at its end, of which some were asked
// for.
func (p *Pager) reserveBehind(asked, n uint64) error {
	if p.o.ReadOnly {
		return nil // replayed in memory: no byte is written
	}
	if most := p.MostPages(); p.space.end+n > most {
		return &SpaceError{
			p.space.end + n - most,
			fmt.Sprintf("%s: a store with pages of %d bytes has at most %d of them, and %d more are needed",
				p.name, p.pageSize, most, p.space.end+n-most),
		}
	}
	need := int64(p.space.end+n) * int64(p.pageSize)
	if need <= p.prealloc.from {
		return nil
	}
	if need > p.fileSize {
		p.EndPreallocation()
	}
	if need > p.fileSize {
		if err := p.grow(asked, need); err != nil {
			return err
		}
	}
	p.preallocate(need)
	return nil
}

// HasSpace says that n pages can be had one by one without more from the disk, and leaves the slack
// alone. But for the first time, and in a small file, it does not wait for a step that is needed
// for that: a goroutine makes it, and the answer is yes soon.
func (p *Pager) HasSpace(n uint64) bool {
	defer p.Overdraft(p.Overdraft(false))
	if n = p.behind(n, min(p.space.inCurrentRun(n), n)); n == 0 {
		return true
	}
	if p.space.end+n > p.MostPages() {
		return false
	}
	room := int64(n) * int64(p.pageSize)
	need := int64(p.space.end)*int64(p.pageSize) + room
	if room > maxGrowth {
		return need <= p.fileSize // No file is made that much longer for what may not be needed.
	}
	now := p.o.Inline || p.prealloc.room == 0 || p.growthStep() == minGrowth
	p.prealloc.room = room
	if need > p.fileSize && len(p.prealloc.to) > 0 {
		p.EndPreallocation()
	}
	size := p.wholePages(max(need, p.fileSize+p.growthStep()))
	if need > p.fileSize && now && p.canPreallocate(size) {
		err := p.file.Grow(size)
		if p.prealloc.full = errors.Is(err, vfs.ErrNoSpace); err == nil {
			p.grown(size)
		}
	}
	p.preallocate(need)
	return need <= p.fileSize
}

// HasFreePages is Room that asks for nothing: n pages can be had as things are.
func (p *Pager) HasFreePages(n uint64) bool {
	defer p.Overdraft(p.Overdraft(false))
	end := p.space.end + p.behind(n, min(p.space.inCurrentRun(n), n))
	return end <= p.MostPages() && int64(end)*int64(p.pageSize) <= p.fileSize
}

// Spare is how many pages a put can have as things are: free ones, and those that the file may grow
// by, without what has to be left. Of a disk it is known only that it was full when the file was to
// grow last. Writer lock.
func (p *Pager) Spare() int64 {
	most := int64(p.MostPages())
	if p.bound > 0 {
		most = min(most, p.bound/int64(p.pageSize))
	}
	here := p.fileSize / int64(p.pageSize)
	if p.prealloc.full {
		most = here
	}
	end := int64(p.space.end)
	atEnd := max(most, min(here, int64(p.MostPages())), end) - end
	return int64(p.space.free()) + atEnd - int64(p.reserve(0))
}

// Unfree is how many pages the newest state does not use and nobody may have yet: a checkpoint, the
// end of a snapshot or of the open transaction makes them free. Writer lock.
func (p *Pager) Unfree() uint64 {
	return p.space.end - min(p.space.end, p.space.nUsed+p.space.free())
}

// canPreallocate says that a step to this size may be made though nobody needs it yet. What fails
// then is nobody's failure: who needs the room will be told.
func (p *Pager) canPreallocate(size int64) bool {
	return p.prealloc.to == nil && !p.prealloc.full && !p.o.ReadOnly && p.o.MaxBytes == 0 &&
		uint64(size)/uint64(p.pageSize) <= p.MostPages()
}

// grow makes the file long enough for need bytes.
func (p *Pager) grow(asked uint64, need int64) error {
	if p.bound > 0 && need > p.bound && !p.overdraft {
		return &SpaceError{uint64(need-p.bound+int64(p.pageSize)-1) / uint64(p.pageSize), fmt.Sprintf(
			"%s: MaxBytes is %d, of which %d are for the main file beside its log, and %d bytes more are needed",
			p.name,
			p.o.MaxBytes,
			p.bound,
			need-p.bound,
		)}
	}
	step := min(max(p.growthStep(), int64(asked)*int64(p.pageSize)*growthAtOnce), maxGrowth)
	size := max(need, p.fileSize+step)
	if p.bound > 0 {
		size = max(min(size, p.bound), need)
	}
	size = min(p.wholePages(size), int64(p.MostPages())*int64(p.pageSize))
	err := p.file.Grow(size)
	p.prealloc.full = errors.Is(err, vfs.ErrNoSpace)
	if size > need && p.prealloc.full {
		size = need
		err = p.file.Grow(size)
	}
	if err != nil {
		return fmt.Errorf("grow %s: %w", p.name, err)
	}
	p.grown(size)
	return nil
}

func (p *Pager) growthStep() int64 {
	return min(max(p.fileSize/growthFraction, minGrowth), maxGrowth)
}

// wholePages rounds a size up.
func (p *Pager) wholePages(size int64) int64 {
	return (size + int64(p.pageSize) - 1) / int64(p.pageSize) * int64(p.pageSize)
}

// grown is told that the file has this size.
func (p *Pager) grown(size int64) {
	p.fileSize = size
	p.fileSync.grown.Store(true)
}

// preallocate has the next step made by a goroutine, if need bytes are in use and less than half a
// step is left, or less than Room was asked for.
func (p *Pager) preallocate(need int64) {
	step := p.growthStep()
	if left := p.fileSize - max(step/2, p.prealloc.room); need <= left && step > minGrowth {
		p.prealloc.from = left
		return
	}
	p.prealloc.from = p.fileSize // until that is reached there is nothing more to do
	if step == minGrowth {
		return
	}
	size := p.wholePages(max(p.fileSize, need) + max(step, p.prealloc.room))
	if p.o.Inline || !p.canPreallocate(size) {
		return
	}
	to, file, from, far := make(chan int64, 1), p.file, p.fileSize, p.mayDefer()
	p.prealloc.to = to
	go func() {
		if file.Grow(size) != nil {
			size = 0
		} else if far {
			file.CacheAhead(from, size-from)
		}
		to <- size
	}()
}

// mayDefer says that most pages are read through the map, since there are more than may have
// frames: each of them anew, from another place, after a checkpoint has written it. In smaller
// stores frames are read, and to have room in the page cache ahead costs more than it gains; where
// memory is short, it evicts pages that are in use.
func (p *Pager) mayDefer() bool {
	return p.mapped && int64(p.UsedPages())*int64(p.pageSize) > p.o.Cache && !p.Scarce()
}

// EndPreallocation waits for the goroutine, if there is one, and takes over what it has made. An
// attempt for which there is no room may have all that is left for a moment: who needs room
// elsewhere calls it before.
func (p *Pager) EndPreallocation() {
	if p.prealloc.to == nil {
		return
	}
	size := <-p.prealloc.to
	p.prealloc.to = nil
	if size == 0 {
		p.prealloc.full = true // or it failed in another way: who needs the room finds out
		return
	}
	p.grown(size)
}

// reserve is how many pages at the end of the file are kept for a checkpoint, which writes the free
// map anew, and for the pages that deletes copy: what gives space back works on a full disk, and at
// MaxBytes. And for the copies that the next open makes of leaves which the log names.
//
// It is the slack of a file that is n pages longer.
func (p *Pager) reserve(n uint64) uint64 {
	kept := forDeletes + p.tableRoom() + p.leafRunPages.since + p.leafRunPages.before
	return kept + p.freeMapReserve(n+kept)
}

// EnsureReserve makes sure that the file has the slack, or at least, where MaxBytes or the disk
// does not have all of it, the part that a checkpoint, or the next open, needs. Whoever puts may
// find pages without asking for more, and be refused the first that has to be asked for: then this
// is what deletes have.
func (p *Pager) EnsureReserve() error {
	defer p.Overdraft(p.Overdraft(false))
	err := p.ensureFileSpace(0)
	if NoSpace(err) {
		p.Overdraft(true)
		err = p.ensureFileSpace(0)
	}
	return err
}

// forDeletes is how many pages of the slack are for what deletions copy. A put that finds all its
// pages free leaves a few less, so that a checkpoint which took of the slack does not keep puts
// from the pages that it has freed.
const (
	forDeletes      = 24
	leastForDeletes = 16
)

// minTreeTablePages is how many pages of the slack are for the tree table, which a checkpoint
// writes, too, unless ReserveTreeTable asked for more.
const minTreeTablePages = 8

func (p *Pager) tableRoom() uint64 { return max(p.treeTableReserve, minTreeTablePages) }

// ReserveTreeTable keeps that many pages of the slack for the tree table until the next capture, or
// is an error if there is no room for them. MaxBytes does not bind it: what is committed has to be
// in a checkpoint some time.
func (p *Pager) ReserveTreeTable(n uint64) error {
	was := p.treeTableReserve
	if n <= p.tableRoom() {
		return nil
	}
	p.treeTableReserve = n
	defer p.Overdraft(p.Overdraft(true))
	err := p.ensureFileSpace(0)
	if err != nil {
		p.treeTableReserve = was
	}
	return err
}

// freeMapReserve is how many pages of the slack are for the free map that a checkpoint writes of a
// file that is n pages longer: one for each group and for the directory above them. They may be in
// groups of their own, which are counted, too.
func (p *Pager) freeMapReserve(n uint64) (room uint64) {
	for pages := uint64(0); ; pages = room {
		groups := (p.space.end + n + pages + p.space.perGroup - 1) / p.space.perGroup
		room = groups + groups/uint64(p.groupsPerDir()) + 4
		if room <= pages {
			return room
		}
	}
}

// TrimFile cuts the file behind its last page. Unless exact, the slack stays, and room for some
// growth. Writer lock.
func (p *Pager) TrimFile(exact bool) error {
	if !exact && p.prealloc.to != nil && len(p.prealloc.to) == 0 {
		return nil // It is growing: nobody wants it shorter, and who commits would wait.
	}
	p.EndPreallocation()
	size := int64(p.space.end) * int64(p.pageSize)
	if !exact {
		size += int64(p.reserve(0)) * int64(p.pageSize)
	}
	if !exact && p.fileSize-size <= max(2*minGrowth, size/4) {
		return nil
	}
	_, err := p.truncateTo(size)
	return err
}

// GiveSpaceBack gives others what the file has behind its pages and the slack, for a disk that is
// full, and says whether there may be more room now: a growth that is under way may have had it for
// a moment. Writer lock, and no checkpoint is under way.
//
// Crash order: the newest durable meta page is the last one, and the file keeps all pages that it
// counts.
func (p *Pager) GiveSpaceBack() (given bool, err error) {
	grew := p.prealloc.to != nil
	p.EndPreallocation()
	given, err = p.truncateTo(int64(max(p.space.end, p.lastMeta.Pages)+p.reserve(0)) * int64(p.pageSize))
	return given || grew, err
}

// truncateTo makes the file shorter, if it is longer than size.
func (p *Pager) truncateTo(size int64) (cut bool, err error) {
	if size >= p.fileSize {
		return false, nil
	}
	if err := p.file.Truncate(size); err != nil {
		return false, fmt.Errorf("cut %s: %w", p.name, err)
	}
	p.fileSize, p.prealloc.from = size, size
	return true, nil
}
