package pager

import (
	"errors"
	"fmt"
)

// reservation is the space that puts leave to others: operations that free space work on a full
// disk and at MaxBytes, a checkpoint rewrites the tree table and the free map, and the next Open
// copies the leaf runs in the log, and leaves that Compact has joined. An allocation succeeds only
// if after it
//
//	free pages + pages of the file behind the end  >=  what its Purpose leaves
//
//	ForPut         checkpoint + deletePages + replay
//	ForDelete      checkpoint                             for the checkpoint that frees its pages
//	ForCheckpoint  nothing
//
// where checkpoint is treeTablePages + freeMapPages. Free pages do as well as the end of the file,
// because the users of the reserve allocate single pages. Writer lock.
type reservation struct {
	pages     uint64 // all of it, as of the last fillReserve
	treeTable uint64 // see ReserveTreeTable
	// Pages that a replay may need beside those that the run has: for leaf runs that a log record refers
	// to, or may refer to, and for pages that Compact has saved. Since the last capture, and before it,
	// until its checkpoint is durable.
	replay, replayBefore uint64
}

const (
	// deletePages is the part of the reserve for the pages that deletions copy. A put that allocates
	// only free pages leaves minDeletePages, so that a checkpoint which used the reserve does not
	// keep puts from the pages that it has freed.
	deletePages    = 24
	minDeletePages = 16
	// minTreeTablePages is the part for the tree table unless ReserveTreeTable has requested more.
	minTreeTablePages = 8
)

// SpaceError reports that a bound on the main file is reached, of the format or of
// Options.MaxBytes, and not that of the disk. It matches ErrNoSpace.
type SpaceError struct {
	Missing uint64 // pages
	text    string
}

func (e *SpaceError) Error() string        { return e.text }
func (e *SpaceError) Is(target error) bool { return target == ErrNoSpace }

// SetMaxBytes sets the part of MaxBytes that the main file may use.
func (a *Allocator) SetMaxBytes(n int64) { a.Growth.bound = max(n, 1) }

// MaxBytes is what SetMaxBytes has set.
func (a *Allocator) MaxBytes() int64 { return a.Growth.bound }

// reserve ensures that n pages can be allocated for a purpose, behind the end or, if not atEnd, as
// many as possible free ones. It grows the file if necessary: a full disk fails the allocation
// before any byte is written. Without room for growth it looks for holes that have room.
func (a *Allocator) reserve(n uint64, atEnd bool, purpose Purpose) error {
	if a.o.ReadOnly {
		return nil // a replay in memory writes no byte
	}
	err := a.reserveNow(n, atEnd, purpose)
	if !NoSpace(err) || a.space.holes.n == 0 {
		return err
	}
	want := n + a.reservePages(n)
	want -= min(want-1, a.space.free())
	filled, bad := a.Holes.fillScattered(want)
	if filled == 0 && bad == nil && a.Growth.full { // the disk may have space again
		a.Growth.full = false
		filled, bad = a.Holes.fill(want)
	}
	if filled == 0 || bad != nil {
		return errors.Join(err, bad)
	}
	return a.reserveNow(n, atEnd, purpose)
}

func (a *Allocator) reserveNow(n uint64, atEnd bool, purpose Purpose) error {
	free := min(n, a.space.free())
	if atEnd {
		free = 0
	}
	size, err := a.sizeFor(n, free, purpose)
	if err != nil {
		return err
	}
	return a.Growth.ensure(size, int64(n-free)*int64(a.pageSize))
}

// HasSpace reports whether n single pages can be allocated for a put without growing the file. It
// does not wait for growth, except at the first call and in small files: a goroutine grows the file,
// and HasSpace returns true soon.
func (a *Allocator) HasSpace(n uint64, how AllocPolicy) bool {
	if a.space.holes.n > 0 && a.space.inCurrentRun(n, how) < n {
		if _, err := a.Holes.fill(n + a.reservePages(n)); err != nil {
			return false
		}
	}
	size, err := a.sizeFor(n, min(a.space.inCurrentRun(n, how), n), ForPut)
	return err == nil && a.Growth.prepare(size)
}

// HasFreePages is HasSpace without any growth.
func (a *Allocator) HasFreePages(n uint64, how AllocPolicy) bool {
	size, err := a.sizeFor(n, min(a.space.inCurrentRun(n, how), n), ForPut)
	return err == nil && size <= a.Growth.size
}

// sizeFor is the size that the file must have for n more pages, so many of them free ones, and for
// the reserve that the purpose leaves. It returns an error if a bound does not allow that size.
func (a *Allocator) sizeFor(n, free uint64, purpose Purpose) (bytes int64, err error) {
	atEnd, left := n-free, uint64(0)
	switch purpose {
	case ForPut:
		if left = a.reservePages(atEnd); atEnd == 0 {
			left -= deletePages - minDeletePages
		}
	case ForDelete:
		left = a.treeTablePages() + a.freeMapPages(atEnd+a.treeTablePages())
	}
	freeAfter := a.space.free() - min(a.space.free(), free)
	pages := a.space.end + atEnd + left - min(left, freeAfter)
	if most := a.MostPages(); pages > most {
		return 0, &SpaceError{pages - most, fmt.Sprintf(
			"%s: a store with pages of %d bytes has at most %d of them, and %d more are needed",
			a.name, a.pageSize, most, pages-most)}
	}
	inUse := pages
	if atEnd == 0 { // the file may be longer than its bound: then not all free pages are for puts
		inUse = a.space.end + left - freeAfter - a.space.holes.n
	}
	bound := a.Growth.bound
	if over := int64(inUse)*int64(a.pageSize) - bound; over > 0 && bound > 0 && purpose == ForPut {
		return 0, &SpaceError{uint64(over+int64(a.pageSize)-1) / uint64(a.pageSize), fmt.Sprintf(
			"%s: MaxBytes is %d, of which %d are for the main file beside its log, "+
				"and %d bytes more are needed", a.name, a.o.MaxBytes, bound, over)}
	}
	return int64(pages) * int64(a.pageSize), nil
}

// Spare is the number of pages that a put can allocate now: free ones, and those by which the file
// may grow, without the reserve. The free space of the disk is unknown, except that the last growth
// failed for lack of it.
func (a *Allocator) Spare() int64 {
	most, end := int64(a.MostPages()), int64(a.space.end)
	if !a.Growth.full {
		most += int64(a.space.holes.n)
	} else {
		most = max(min(most, a.Growth.size/int64(a.pageSize)), end)
	}
	if a.Growth.bound > 0 { // Less than end where deletes have gone past it.
		most = min(most, a.Growth.bound/int64(a.pageSize))
	}
	return int64(a.space.free()) + most - end - int64(a.reservePages(0))
}

// Unfree is the number of pages that the newest state does not use and that are not available yet:
// a checkpoint, or the end of a snapshot or of the open transaction, frees them.
func (a *Allocator) Unfree() uint64 {
	return a.space.end - min(a.space.end, a.space.nUsed+a.space.free()+a.space.holes.n)
}

// reservePages is the whole reserve of a file that is n pages longer.
func (a *Allocator) reservePages(n uint64) uint64 {
	r := &a.reserved
	left := deletePages + a.treeTablePages() + r.replay + r.replayBefore
	return left + a.freeMapPages(n+left)
}

// EnsureReserve ensures that the file has the reserve, or, if MaxBytes or the disk does not allow
// it, at least the part that a checkpoint or the next open needs. Puts that allocate free pages may
// succeed until the first growth fails: then deletes use this reserve.
func (a *Allocator) EnsureReserve() error {
	err := a.reserve(0, false, ForPut)
	if NoSpace(err) {
		err = a.reserve(0, false, ForDelete)
	}
	return err
}

func (a *Allocator) treeTablePages() uint64 { return max(a.reserved.treeTable, minTreeTablePages) }

// ReserveTreeTable reserves pages for the tree table until the next capture, or returns an error if
// there is no space for them. MaxBytes does not bind it: a later checkpoint must contain each
// commit.
func (a *Allocator) ReserveTreeTable(n uint64) error {
	before := a.reserved.treeTable
	if n <= a.treeTablePages() {
		return nil
	}
	a.reserved.treeTable = n
	err := a.reserve(0, false, ForDelete)
	if err != nil {
		a.reserved.treeTable = before
	}
	return err
}

// freeMapPages is the part of the reserve for the free map of a file that is n pages longer: a page
// for each group, and the directory above them. These pages may need groups of their own, which are
// included.
func (a *Allocator) freeMapPages(n uint64) (reserved uint64) {
	for pages := uint64(0); ; pages = reserved {
		groups := (a.space.end + n + pages + a.space.perGroup - 1) / a.space.perGroup
		reserved = groups + groups/uint64(a.groupsPerDir()) + 4
		if reserved <= pages {
			return reserved
		}
	}
}

// ReserveReplay reserves n pages that the next Open needs and the run does not have.
func (a *Allocator) ReserveReplay(n uint64, purpose Purpose) error {
	a.reserved.replay += n
	err := a.reserve(0, false, purpose)
	if err != nil {
		a.ReleaseReplay(n)
	}
	return err
}

// ReleaseReplay unreserves n pages of a transaction that is rolled back.
func (a *Allocator) ReleaseReplay(n uint64) { a.reserved.replay -= n }

// captured accounts for a capture. AcceptReusable follows when its checkpoint is durable.
func (r *reservation) captured() {
	r.replay, r.replayBefore, r.treeTable = 0, r.replay+r.replayBefore, 0
}
