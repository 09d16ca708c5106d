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

// ensureSize grows the file to at least so many bytes. asked are those of them that the caller is
// about to allocate there.
func (p *Pager) ensureSize(need, asked int64) error {
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

// prepareSize reports whether the file has so many bytes, and starts its growth if they, or as many
// again, are missing.
func (p *Pager) prepareSize(need int64) bool {
	wanted := need - int64(p.space.end)*int64(p.pageSize)
	if wanted > maxGrowth {
		return need <= p.fileSize // too much to preallocate for pages that may not be needed
	}
	if need > p.fileSize && len(p.prealloc.grownTo) > 0 {
		p.EndPreallocation()
	}
	now := p.o.Inline || p.prealloc.wanted == 0 || p.growthStep() == minGrowth
	if need > p.fileSize && now && p.canPreallocate(need) && p.grow(0, need) != nil {
		return false
	}
	p.prealloc.wanted = wanted
	p.preallocate(need)
	return need <= p.fileSize
}

// canPreallocate reports whether a step to this size may be made in advance. Its failure is no
// error: the allocation that needs the space reports it.
func (p *Pager) canPreallocate(size int64) bool {
	return p.prealloc.grownTo == nil && !p.prealloc.full && !p.o.ReadOnly && p.o.MaxBytes == 0 &&
		uint64(size)/uint64(p.pageSize) <= p.MostPages()
}

// grow extends the file to at least need bytes.
func (p *Pager) grow(asked, need int64) error {
	step := min(max(p.growthStep(), asked*growthAtOnce), maxGrowth)
	size := max(need, p.fileSize+step)
	if p.reserved.bound > 0 {
		size = max(min(size, p.reserved.bound), need)
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
func (f *mainFile) wholePages(size int64) int64 {
	return (size + int64(f.pageSize) - 1) / int64(f.pageSize) * int64(f.pageSize)
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

// TrimFile truncates the file behind its last page. Unless exact, the reserve stays, and space for
// some growth. Writer lock.
func (p *Pager) TrimFile(exact bool) error {
	if !exact && p.prealloc.grownTo != nil && len(p.prealloc.grownTo) == 0 {
		return nil // Growth is under way, for which commits would have to wait.
	}
	p.EndPreallocation()
	size := int64(p.space.end) * int64(p.pageSize)
	if !exact {
		size += int64(p.reservePages(0)) * int64(p.pageSize)
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
	freed, err = p.truncateTo(int64(max(p.space.end, p.lastMeta.Pages)+p.reservePages(0)) * int64(p.pageSize))
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
