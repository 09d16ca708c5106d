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
	maxGrowth      = 16 << 20
	growthAtOnce   = 8
	maxWanted      = 2 * maxGrowth // of HasSpace: 1000 rows of a batch want up to 17 MiB
)

// fileGrowth extends the file before the space is needed. While a checkpoint writes to the file,
// or the disk is busy with the log, an extension may take milliseconds, and an allocating goroutine
// holds the writer lock. A goroutine that ends with the extension makes it; all fields need the
// writer lock. It starts when half a step is left, and not for small files, so that small updates
// and deletions do not extend the file in vain.
//
// EndPreallocation takes over the new space, and no page is allocated there before: until then a
// crash or a failure leaves a file that is longer than its pages, or an unchanged one.
type fileGrowth struct {
	*mainFile
	space     *space
	size      int64 // bytes of which those behind the last page are known to have room on the disk
	length    int64 // of the file; at least size
	bound     int64 // on size; 0: none
	threshold int64 // used bytes at which the next step is due; at most size
	wanted    int64 // bytes behind the used ones of the last HasSpace call; 0: none since TrimFile
	// The disk had no room for the last step, or for a hole: no further preallocation, and holes stay
	// unless they had room at open. An allocation that would fail otherwise asks again.
	full bool
	// of capacity 1: the new size from the goroutine, or the length from one of startTruncation; 0 or
	// truncationStopped; nil: no goroutine runs
	grownTo chan int64
	cut     *truncation // by that goroutine; nil: none
}

// ensure grows the file to at least so many bytes. asked are those of them that the caller is
// about to allocate there.
func (g *fileGrowth) ensure(need, asked int64) error {
	if need <= g.threshold {
		return nil
	}
	if need > g.size && !g.cutLess(need) {
		g.EndPreallocation()
	}
	if need > g.size {
		if err := g.grow(asked, need); err != nil {
			return err
		}
	}
	g.preallocate(need)
	return nil
}

// prepare reports whether the file has so many bytes, and starts its growth if they, or as many
// again, are missing.
func (g *fileGrowth) prepare(need int64) bool {
	wanted := need - int64(g.space.end)*int64(g.pageSize)
	if wanted > maxWanted {
		return need <= g.size // too much to preallocate for pages that may not be needed
	}
	if need > g.size && !g.cutLess(need) && len(g.grownTo) > 0 {
		g.EndPreallocation()
	}
	now := g.o.Inline || g.wanted == 0 || g.step() == minGrowth
	if need > g.size && now && g.mayStep(need) && g.grow(0, need) != nil {
		return false
	}
	g.wanted = wanted
	g.preallocate(need)
	return need <= g.size
}

// mayStep reports whether a step to this size may be made in advance. Its failure is no
// error: the allocation that needs the space reports it.
func (g *fileGrowth) mayStep(size int64) bool {
	return g.grownTo == nil && !g.full && !g.o.ReadOnly && g.o.MaxBytes == 0 &&
		uint64(size)/uint64(g.pageSize) <= g.space.most
}

// grow extends the file to at least need bytes.
func (g *fileGrowth) grow(asked, need int64) error {
	step := min(max(g.step(), asked*growthAtOnce), maxGrowth)
	size := max(need, g.size+step)
	if g.bound > 0 {
		size = max(min(size, g.bound), need)
	}
	size = min(g.wholePages(size), int64(g.space.most)*int64(g.pageSize))
	err := g.extendFile(g.size, g.length, size)
	g.full = errors.Is(err, vfs.ErrNoSpace)
	if size > need && g.full {
		size = need
		err = g.extendFile(g.size, g.length, size)
	}
	if err != nil {
		return fmt.Errorf("grow %s: %w", g.name, err)
	}
	g.grown(size)
	return nil
}

// extendFile gives room to the bytes of the file from from up to size. It has length bytes.
func (f *mainFile) extendFile(from, length, size int64) error {
	if from < length && from < size {
		if err := f.file.Reserve(from, min(size, length)-from); err != nil {
			return err
		}
	}
	if size <= length {
		return nil
	}
	return f.file.Grow(size)
}

func (g *fileGrowth) step() int64 {
	return min(max(g.size/growthFraction, minGrowth), maxGrowth)
}

// wholePages rounds a size up to a multiple of the page size.
func (f *mainFile) wholePages(size int64) int64 {
	return (size + int64(f.pageSize) - 1) / int64(f.pageSize) * int64(f.pageSize)
}

// grown records the new size of the file.
func (g *fileGrowth) grown(size int64) {
	g.size, g.length = size, max(size, g.length)
	g.fileSync.grown.Store(true)
}

// preallocate starts a goroutine that makes the next step, if need bytes are in use and less than
// half a step, or less than HasSpace wanted, is left.
func (g *fileGrowth) preallocate(need int64) {
	step := g.step()
	if left := g.size - max(step/2, g.wanted); need <= left && step > minGrowth {
		g.threshold = left
		return
	}
	g.threshold = g.size
	if step == minGrowth {
		return
	}
	size := g.wholePages(max(g.size, need) + max(step, g.wanted))
	if g.o.Inline || !g.mayStep(size) {
		return
	}
	grownTo, file, from := make(chan int64, 1), g.mainFile, g.size
	length := g.length
	g.grownTo = grownTo
	go func() {
		if file.extendFile(from, length, size) != nil {
			size = 0
		}
		grownTo <- size
	}()
}

// EndPreallocation waits for the goroutine, if any, and takes over the new size: commits wait for one
// call to the file system, since a truncation stops where it is. A failing attempt may use all of the
// free disk space for a moment: callers that need space in other files call EndPreallocation first.
func (g *fileGrowth) EndPreallocation() {
	if g.grownTo == nil {
		return
	}
	if g.cut != nil {
		g.cut.stop.Store(true)
	}
	size, cut := <-g.grownTo, g.cut
	g.grownTo, g.cut = nil, nil
	switch size {
	case 0:
		g.full = true // or another error, which the next growth reports
	case truncationStopped: // the file has bytes behind size, perhaps without room
		if length, err := g.file.Size(); err == nil {
			g.length = max(length, g.length)
		}
	default:
		if cut != nil {
			size = min(size, cut.room)
		}
		g.grown(size)
	}
}

// truncationStopped is sent instead of a size, by a truncation that was stopped or has failed.
const truncationStopped = -1
