package pager

import (
	"errors"
	"fmt"

	"github.com/ebbkv/ebb/internal/vfs"
)

// The file grows by an eighth of itself, or by a multiple of the requested size, within these
// bounds, so that its size changes rarely: the next sync has to make the new size durable, too.
const (
	growthFraction = 8
	minGrowth      = 256 << 10
	maxGrowth      = 64 << 20
	growthAtOnce   = 8
)

// preallocation extends the file before the space is needed. While a checkpoint writes to the file,
// or the disk is busy with the log, an extension may take milliseconds, and an allocating goroutine
// holds the writer lock. A goroutine that ends with the extension makes it; all fields need the
// writer lock. It starts when half a step is left, and not for small files, so that small updates
// and deletions do not extend the file in vain.
//
// EndPreallocation takes over the new space, and no page is allocated there before: until then a
// crash or a failure leaves a file that is longer than its pages, or an unchanged one.
type preallocation struct {
	threshold int64      // used bytes at which the next step is due; at most fileSize
	wanted    int64      // bytes behind the used ones of the last HasSpace call
	full      bool       // the last step failed for lack of space: no further preallocation
	grownTo   chan int64 // of capacity 1: the goroutine's new file size, or 0; nil: no goroutine runs
}

// ensureFileSpace ensures that the file has space for n more pages at its end and for the reserve,
// before any byte is written there: a full disk fails only the allocation.
func (p *Pager) ensureFileSpace(n uint64, purpose Purpose) error {
	return p.reserveAtEnd(n, p.pagesAtEnd(n, 0, purpose), purpose)
}

// keep ensures that n pages can be allocated, preferably free ones, while the reserve remains
// available, free or at the end of the file.
func (p *Pager) keep(n uint64, purpose Purpose) error {
	if purpose == ForPut && p.pastBound(0) {
		if err := p.checkPagesInUse(n); err != nil {
			return err
		}
	}
	free, leafRuns := p.space.free(), p.leafRunPages.since+p.leafRunPages.before
	if free >= n && free-n > p.space.end/maxReserveFraction+maxReserveBase+leafRuns+p.treeTableReserve {
		return nil // more free pages remain than the reserve can be
	}
	atEnd := p.pagesAtEnd(n, min(n, free), purpose)
	if atEnd == 0 {
		return nil
	}
	return p.reserveAtEnd(0, atEnd, purpose)
}

// pastBound says that the file would be past MaxBytes with n pages more.
func (p *Pager) pastBound(n uint64) bool {
	return p.bound > 0 && int64(p.space.end+n)*int64(p.pageSize) > p.bound
}

// checkPagesInUse refuses n pages to a put where deletes, or a session without MaxBytes, have made
// the file longer than its bound: the free pages behind that are not for puts. Pages that wait for a
// checkpoint count as used.
func (p *Pager) checkPagesInUse(n uint64) error {
	left := p.reserve(0) - (deleteReserve - minDeleteReserve)
	need := int64(p.space.end-p.space.free()+n+left) * int64(p.pageSize)
	if need > p.bound {
		return p.boundError(need)
	}
	return nil
}

func (p *Pager) boundError(need int64) error {
	return &SpaceError{uint64(need-p.bound+int64(p.pageSize)-1) / uint64(p.pageSize), fmt.Sprintf(
		"%s: MaxBytes is %d, of which %d are for the main file beside its log, and %d bytes more are needed",
		p.name,
		p.o.MaxBytes,
		p.bound,
		need-p.bound,
	)}
}

// The reserve without leaf run copies and tree table is less than this part of the file plus this
// number of pages: in a group of 64 pages, the smallest, it is one and a half groups.
const (
	maxReserveFraction = 32
	maxReserveBase     = 64
)

// pagesAtEnd is the number of pages for which the file must have space at its end if n are
// allocated now, have of them from the free ones. It includes the part of the reserve that is not
// free. A put must leave all of the reserve, a deletion must leave the pages of the checkpoint that
// reclaims its freed pages, and that checkpoint none. Free pages serve as reserve as well as the
// end of the file, because its users allocate single pages.
func (p *Pager) pagesAtEnd(n, have uint64, purpose Purpose) uint64 {
	reserved := uint64(0)
	switch purpose {
	case ForPut:
		if reserved = p.reserve(n - have); have == n {
			reserved -= deleteReserve - minDeleteReserve
		}
	case ForDelete:
		reserved = p.treeTablePages() + p.freeMapReserve(n-have+p.treeTablePages())
	}
	free := p.space.free()
	return n - have + reserved - min(reserved, free-min(free, have))
}

// reserveAtEnd ensures that the file has space for n pages at its end, for asked pages and the
// reserve.
func (p *Pager) reserveAtEnd(asked, n uint64, purpose Purpose) error {
	if p.o.ReadOnly {
		return nil // a replay in memory writes no byte
	}
	if most := p.MostPages(); p.space.end+n > most {
		return &SpaceError{
			p.space.end + n - most,
			fmt.Sprintf("%s: a store with pages of %d bytes has at most %d of them, and %d more are needed",
				p.name, p.pageSize, most, p.space.end+n-most),
		}
	}
	need := int64(p.space.end+n) * int64(p.pageSize)
	if p.pastBound(n) && purpose == ForPut { // The file may be longer: deletes go past the bound.
		return p.boundError(need)
	}
	if need <= p.prealloc.threshold {
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

// HasSpace reports whether n single pages can be allocated without growing the file or using the
// reserve. Except for the first call, and in small files, it does not wait for a needed step: a
// goroutine makes the step, and HasSpace returns true soon.
func (p *Pager) HasSpace(n uint64, how AllocPolicy) bool {
	if n = p.pagesAtEnd(n, min(p.space.inCurrentRun(n, how), n), ForPut); n == 0 {
		return true
	}
	if p.space.end+n > p.MostPages() {
		return false
	}
	wanted := int64(n) * int64(p.pageSize)
	need := int64(p.space.end)*int64(p.pageSize) + wanted
	if wanted > maxGrowth {
		return need <= p.fileSize // too much to preallocate for pages that may not be needed
	}
	now := p.o.Inline || p.prealloc.wanted == 0 || p.growthStep() == minGrowth
	p.prealloc.wanted = wanted
	if need > p.fileSize && len(p.prealloc.grownTo) > 0 {
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

// HasFreePages is HasSpace without any preallocation.
func (p *Pager) HasFreePages(n uint64, how AllocPolicy) bool {
	atEnd := p.pagesAtEnd(n, min(p.space.inCurrentRun(n, how), n), ForPut)
	end := p.space.end + atEnd
	return !p.pastBound(atEnd) && end <= p.MostPages() && int64(end)*int64(p.pageSize) <= p.fileSize
}

// Spare is the number of pages that a put can allocate now: free ones, and those by which the file
// may grow, without the reserve. The free space of the disk is unknown, except that the last growth
// failed for lack of it. Writer lock.
func (p *Pager) Spare() int64 {
	most, end := int64(p.MostPages()), int64(p.space.end)
	if p.prealloc.full {
		most = max(min(most, p.fileSize/int64(p.pageSize)), end)
	}
	if p.bound > 0 { // Less than end where deletes have gone past it.
		most = min(most, p.bound/int64(p.pageSize))
	}
	return int64(p.space.free()) + most - end - int64(p.reserve(0))
}

// Unfree is the number of pages that the newest state does not use and that are not available yet:
// a checkpoint, or the end of a snapshot or of the open transaction, frees them. Writer lock.
func (p *Pager) Unfree() uint64 {
	return p.space.end - min(p.space.end, p.space.nUsed+p.space.free())
}

// canPreallocate reports whether a step to this size may be made in advance. Its failure is no
// error: the allocation that needs the space reports it.
func (p *Pager) canPreallocate(size int64) bool {
	return p.prealloc.grownTo == nil && !p.prealloc.full && !p.o.ReadOnly && p.o.MaxBytes == 0 &&
		uint64(size)/uint64(p.pageSize) <= p.MostPages()
}

// grow extends the file to at least need bytes.
func (p *Pager) grow(asked uint64, need int64) error {
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

// wholePages rounds a size up to a multiple of the page size.
func (p *Pager) wholePages(size int64) int64 {
	return (size + int64(p.pageSize) - 1) / int64(p.pageSize) * int64(p.pageSize)
}

// grown records the new size of the file.
func (p *Pager) grown(size int64) {
	p.fileSize = size
	p.fileSync.grown.Store(true)
}

// preallocate starts a goroutine that makes the next step, if need bytes are in use and less than
// half a step, or less than HasSpace wanted, is left.
func (p *Pager) preallocate(need int64) {
	step := p.growthStep()
	if left := p.fileSize - max(step/2, p.prealloc.wanted); need <= left && step > minGrowth {
		p.prealloc.threshold = left
		return
	}
	p.prealloc.threshold = p.fileSize
	if step == minGrowth {
		return
	}
	size := p.wholePages(max(p.fileSize, need) + max(step, p.prealloc.wanted))
	if p.o.Inline || !p.canPreallocate(size) {
		return
	}
	grownTo, file, from, cache := make(chan int64, 1), p.file, p.fileSize, p.mayDefer()
	p.prealloc.grownTo = grownTo
	go func() {
		if file.Grow(size) != nil {
			size = 0
		} else if cache {
			file.CacheAhead(from, size-from)
		}
		grownTo <- size
	}()
}

// mayDefer reports whether most pages are read through the map, because there are more than may
// have frames: each of them again, at another place, after a checkpoint has written it. In smaller
// stores frames are read, and populating the page cache in advance costs more than it gains. If
// memory is short, it evicts pages in use.
func (p *Pager) mayDefer() bool {
	return p.mapped && int64(p.UsedPages())*int64(p.pageSize) > p.o.Cache && !p.Scarce()
}

// EndPreallocation waits for the goroutine, if any, and takes over the new size. A failing attempt
// may use all of the free disk space for a moment: callers that need space in other files call
// EndPreallocation first.
func (p *Pager) EndPreallocation() {
	if p.prealloc.grownTo == nil {
		return
	}
	size := <-p.prealloc.grownTo
	p.prealloc.grownTo = nil
	if size == 0 {
		p.prealloc.full = true // or another error, which the next growth reports
		return
	}
	p.grown(size)
}

// reserve is the number of free pages, or pages at the end of the file, that are kept for a
// checkpoint, which rewrites the free map, and for the pages that deletes copy: operations that
// free space work on a full disk and at MaxBytes. It includes the copies that the next open makes
// of leaf runs in the log.
//
// The reserve is that of a file that is n pages longer.
func (p *Pager) reserve(n uint64) uint64 {
	kept := deleteReserve + p.treeTablePages() + p.leafRunPages.since + p.leafRunPages.before
	return kept + p.freeMapReserve(n+kept)
}

// EnsureReserve ensures that the file has the reserve, or, if MaxBytes or the disk does not allow
// it, at least the part that a checkpoint or the next open needs. Puts that allocate free pages may
// succeed until the first growth fails: then deletes use this reserve.
func (p *Pager) EnsureReserve() error {
	err := p.ensureFileSpace(0, ForPut)
	if NoSpace(err) {
		err = p.ensureFileSpace(0, ForDelete)
	}
	return err
}

// deleteReserve is the part of the reserve for the pages that deletions copy. A put that allocates
// only free pages leaves minDeleteReserve, so that a checkpoint which used the reserve does not
// keep puts from the pages that it has freed.
const (
	deleteReserve    = 24
	minDeleteReserve = 16
)

// minTreeTablePages is the part of the reserve for the tree table, which a checkpoint writes, too,
// unless ReserveTreeTable has requested more.
const minTreeTablePages = 8

func (p *Pager) treeTablePages() uint64 { return max(p.treeTableReserve, minTreeTablePages) }

// ReserveTreeTable reserves pages for the tree table until the next capture, or returns an error if
// there is no space for them. MaxBytes does not bind it: a later checkpoint must contain each
// commit.
func (p *Pager) ReserveTreeTable(n uint64) error {
	before := p.treeTableReserve
	if n <= p.treeTablePages() {
		return nil
	}
	p.treeTableReserve = n
	err := p.ensureFileSpace(0, ForDelete)
	if err != nil {
		p.treeTableReserve = before
	}
	return err
}

// freeMapReserve is the part of the reserve for the free map of a file that is n pages longer: a
// page for each group, and the directory above them. These pages may need groups of their own,
// which are included.
func (p *Pager) freeMapReserve(n uint64) (reserved uint64) {
	for pages := uint64(0); ; pages = reserved {
		groups := (p.space.end + n + pages + p.space.perGroup - 1) / p.space.perGroup
		reserved = groups + groups/uint64(p.groupsPerDir()) + 4
		if reserved <= pages {
			return reserved
		}
	}
}

// TrimFile truncates the file behind its last page. Unless exact, the reserve stays, and space for
// some growth. Writer lock.
func (p *Pager) TrimFile(exact bool) error {
	if !exact && p.prealloc.grownTo != nil && len(p.prealloc.grownTo) == 0 {
		return nil // Growth is under way, for which commits would have to wait.
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

// GiveSpaceBack truncates the file behind its pages and the reserve, for a disk that is full. It
// reports whether there may be more space now: a running growth may have used some for a moment.
// Writer lock, and no checkpoint is under way.
//
// Crash order: the newest durable meta page is the last one, and the file keeps all pages that it
// counts.
func (p *Pager) GiveSpaceBack() (freed bool, err error) {
	grew := p.prealloc.grownTo != nil
	p.EndPreallocation()
	freed, err = p.truncateTo(int64(max(p.space.end, p.lastMeta.Pages)+p.reserve(0)) * int64(p.pageSize))
	return freed || grew, err
}

// truncateTo truncates the file to size, if it is longer.
func (p *Pager) truncateTo(size int64) (done bool, err error) {
	if size >= p.fileSize {
		return false, nil
	}
	if err := p.file.Truncate(size); err != nil {
		return false, fmt.Errorf("cut %s: %w", p.name, err)
	}
	p.fileSize, p.prealloc.threshold = size, size
	return true, nil
}
