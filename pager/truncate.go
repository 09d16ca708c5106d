package pager

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ebbkv/ebb/internal/vfs"
)

// TrimFile truncates the file behind its last page. Unless exact, the reserve stays, space for some
// growth, and what preallocate would make again for the next HasSpace call. Writer lock.
func (a *Allocator) TrimFile(exact bool) error {
	if !exact && a.Growth.grownTo != nil && len(a.Growth.grownTo) == 0 {
		return nil // Growth is under way, for which commits would have to wait.
	}
	a.Growth.EndPreallocation()
	size := int64(a.space.end) * int64(a.pageSize)
	if !exact {
		size += int64(a.reservePages(0))*int64(a.pageSize) + 2*a.Growth.wanted
	}
	a.Growth.wanted = 0
	if !exact && a.Growth.length-size <= max(2*minGrowth, size/4) {
		return nil
	}
	if !exact && !a.o.Inline {
		a.Growth.startTruncation(size)
		return nil
	}
	_, err := a.Growth.truncateTo(size)
	return err
}

// TrimTail is TrimFile that leaves only the reserve. Writer lock, and no checkpoint is under way: see
// GiveSpaceBack. ended is closed when the file has its new size; nil: it has it.
func (a *Allocator) TrimTail() (ended <-chan struct{}, err error) {
	if g := &a.Growth; g.cut != nil && g.cut.leaveLess(a.leastBytes()) {
		g.setSize(g.cut.to, g.cut.room)
		return g.cut.ended, nil
	}
	a.Growth.EndPreallocation()
	if !a.o.Inline {
		return a.Growth.startTruncation(a.leastBytes()), nil
	}
	_, err = a.Growth.truncateTo(a.leastBytes())
	return nil, err
}

// freeStep is how many bytes one call gives back to the file system, by a truncation or as a hole.
// While it runs, first reads of pages through the map wait: one call for 70 MiB took 600 ms.
const freeStep = 128 << 10

// startTruncation is truncateTo in a goroutine: file systems take seconds to free large ranges. If it
// is stopped, or fails, the file stays longer, and the next checkpoint truncates it.
func (g *fileGrowth) startTruncation(size int64) (ended <-chan struct{}) {
	if size >= g.length {
		return nil
	}
	c := &truncation{room: g.size, ended: make(chan struct{}), at: g.length, to: size}
	grownTo, file := make(chan int64, 1), g.file
	g.grownTo, g.cut = grownTo, c
	g.setSize(size, c.room)
	go func() {
		grownTo <- c.run(file)
		close(c.ended)
	}()
	return c.ended
}

// setSize notes the length that a truncation leaves, and how much of it has room.
func (g *fileGrowth) setSize(length, room int64) {
	g.length, g.size = length, min(length, room)
	g.threshold = g.size
}

// cutLess makes a running truncation leave at least need bytes, if it has not reached them yet and
// there is room for them. It says whether it did.
func (g *fileGrowth) cutLess(need int64) bool {
	c := g.cut
	if c == nil || !c.leaveMore(need, need+g.step()) {
		return false
	}
	if c.to > c.room && g.file.Reserve(c.room, c.to-c.room) == nil {
		c.room = c.to
	}
	g.setSize(c.to, c.room)
	return g.size >= need
}

type truncation struct {
	room  int64 // bytes of the file that have room unless they were cut off. Writer lock
	ended chan struct{}
	stop  atomic.Bool

	mu   sync.Mutex // guards the fields below; not held during a call to the file system
	at   int64      // the file has this length, or gets it by the call that runs
	to   int64      // length in the end; only the holder of the writer lock changes it
	over bool       // there is no part to come
}

// run returns the length in the end, or truncationStopped.
func (c *truncation) run(file vfs.File) int64 {
	for {
		at, more := c.next()
		switch {
		case !more:
			return at
		case c.stop.Load() || file.Truncate(at) != nil:
			return truncationStopped
		}
	}
}

// next begins the next part, and returns the length after it; more is false behind the last.
func (c *truncation) next() (at int64, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over = c.at <= c.to; c.over {
		return c.at, false
	}
	c.at = max(c.at-freeStep, c.to)
	return c.at, true
}

// leaveLess lowers the length in the end.
func (c *truncation) leaveLess(size int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.to = min(c.to, size)
	}
	return !c.over
}

// leaveMore raises the length in the end to most bytes, or as many as there still are: at least need.
func (c *truncation) leaveMore(need, most int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	size := min(most, c.at)
	if size < need || c.over {
		return false
	}
	c.to = max(c.to, size)
	return true
}

// GiveSpaceBack truncates the file behind its pages and the reserve, for a disk that is full. It
// reports whether there may be more space now: a running growth may have used some for a moment.
// Writer lock, and no checkpoint is under way.
//
// Crash order: the newest durable meta page is the last one, and the file keeps all pages that it
// counts.
func (a *Allocator) GiveSpaceBack() (freed bool, err error) {
	grew := a.Growth.grownTo != nil
	a.Growth.EndPreallocation()
	freed, err = a.Growth.truncateTo(a.leastBytes())
	return freed || grew, err
}

// leastBytes is the size of a file with the pages that the last meta page counts, and the reserve.
func (a *Allocator) leastBytes() int64 {
	return int64(max(a.space.end, a.lastMeta.Pages)+a.reservePages(0)) * int64(a.pageSize)
}

// truncateTo truncates the file to size, if it is longer.
func (g *fileGrowth) truncateTo(size int64) (done bool, err error) {
	if size >= g.length {
		return false, nil
	}
	if err := g.file.Truncate(size); err != nil {
		return false, fmt.Errorf("cut %s: %w", g.name, err)
	}
	g.setSize(size, g.size)
	return true, nil
}
