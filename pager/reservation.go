package pager

import "fmt"

// reservation is the space that puts leave to others: operations that free space work on a full
// disk and at MaxBytes, a checkpoint rewrites the tree table and the free map, and the next Open
// copies the leaf runs in the log. An allocation succeeds only if after it
//
//	free pages + pages of the file behind the end  >=  what its Purpose leaves
//
//	ForPut         checkpoint + deletePages + leaf runs
//	ForDelete      checkpoint                             for the checkpoint that frees its pages
//	ForCheckpoint  nothing
//
// where checkpoint is treeTablePages + freeMapPages. Free pages do as well as the end of the file,
// because the users of the reserve allocate single pages. Writer lock.
type reservation struct {
	bound     int64  // on the main file, in bytes; 0: none
	treeTable uint64 // see ReserveTreeTable
	// Pages of leaf runs that a log record refers to, or may refer to: written since the last
	// capture, and before it, until its checkpoint is durable.
	leafRuns, leafRunsBefore uint64
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
func (p *Pager) SetMaxBytes(n int64) { p.reserved.bound = max(n, 1) }

// MaxBytes is what SetMaxBytes has set.
func (p *Pager) MaxBytes() int64 { return p.reserved.bound }

// reserve ensures that n pages can be allocated for a purpose, so many of them free ones. It grows
// the file if necessary: a full disk fails the allocation before any byte is written.
func (p *Pager) reserve(n, free uint64, purpose Purpose) error {
	if p.o.ReadOnly {
		return nil // a replay in memory writes no byte
	}
	size, err := p.sizeFor(n, free, purpose)
	if err != nil {
		return err
	}
	return p.ensureSize(size, int64(n-free)*int64(p.pageSize))
}

// HasSpace reports whether n single pages can be allocated for a put without growing the file. It
// does not wait for growth, except at the first call and in small files: a goroutine grows the file,
// and HasSpace returns true soon.
func (p *Pager) HasSpace(n uint64, how AllocPolicy) bool {
	size, err := p.sizeFor(n, min(p.space.inCurrentRun(n, how), n), ForPut)
	return err == nil && p.prepareSize(size)
}

// HasFreePages is HasSpace without any growth.
func (p *Pager) HasFreePages(n uint64, how AllocPolicy) bool {
	size, err := p.sizeFor(n, min(p.space.inCurrentRun(n, how), n), ForPut)
	return err == nil && size <= p.fileSize
}

// sizeFor is the size that the file must have for n more pages, so many of them free ones, and for
// the reserve that the purpose leaves. It returns an error if a bound does not allow that size.
func (p *Pager) sizeFor(n, free uint64, purpose Purpose) (bytes int64, err error) {
	atEnd, left := n-free, uint64(0)
	switch purpose {
	case ForPut:
		if left = p.reservePages(atEnd); atEnd == 0 {
			left -= deletePages - minDeletePages
		}
	case ForDelete:
		left = p.treeTablePages() + p.freeMapPages(atEnd+p.treeTablePages())
	}
	freeAfter := p.space.free() - min(p.space.free(), free)
	pages := p.space.end + atEnd + left - min(left, freeAfter)
	if most := p.MostPages(); pages > most {
		return 0, &SpaceError{pages - most, fmt.Sprintf(
			"%s: a store with pages of %d bytes has at most %d of them, and %d more are needed",
			p.name, p.pageSize, most, pages-most)}
	}
	inUse := pages
	if atEnd == 0 { // the file may be longer than its bound: then not all free pages are for puts
		inUse = p.space.end + left - freeAfter
	}
	bound := p.reserved.bound
	if over := int64(inUse)*int64(p.pageSize) - bound; over > 0 && bound > 0 && purpose == ForPut {
		return 0, &SpaceError{uint64(over+int64(p.pageSize)-1) / uint64(p.pageSize), fmt.Sprintf(
			"%s: MaxBytes is %d, of which %d are for the main file beside its log, "+
				"and %d bytes more are needed", p.name, p.o.MaxBytes, bound, over)}
	}
	return int64(pages) * int64(p.pageSize), nil
}

// Spare is the number of pages that a put can allocate now: free ones, and those by which the file
// may grow, without the reserve. The free space of the disk is unknown, except that the last growth
// failed for lack of it.
func (p *Pager) Spare() int64 {
	most, end := int64(p.MostPages()), int64(p.space.end)
	if p.prealloc.full {
		most = max(min(most, p.fileSize/int64(p.pageSize)), end)
	}
	if p.reserved.bound > 0 { // Less than end where deletes have gone past it.
		most = min(most, p.reserved.bound/int64(p.pageSize))
	}
	return int64(p.space.free()) + most - end - int64(p.reservePages(0))
}

// Unfree is the number of pages that the newest state does not use and that are not available yet:
// a checkpoint, or the end of a snapshot or of the open transaction, frees them.
func (p *Pager) Unfree() uint64 {
	return p.space.end - min(p.space.end, p.space.nUsed+p.space.free())
}

// reservePages is the whole reserve of a file that is n pages longer.
func (p *Pager) reservePages(n uint64) uint64 {
	r := &p.reserved
	left := deletePages + p.treeTablePages() + r.leafRuns + r.leafRunsBefore
	return left + p.freeMapPages(n+left)
}

// EnsureReserve ensures that the file has the reserve, or, if MaxBytes or the disk does not allow
// it, at least the part that a checkpoint or the next open needs. Puts that allocate free pages may
// succeed until the first growth fails: then deletes use this reserve.
func (p *Pager) EnsureReserve() error {
	err := p.reserve(0, 0, ForPut)
	if NoSpace(err) {
		err = p.reserve(0, 0, ForDelete)
	}
	return err
}

func (p *Pager) treeTablePages() uint64 { return max(p.reserved.treeTable, minTreeTablePages) }

// ReserveTreeTable reserves pages for the tree table until the next capture, or returns an error if
// there is no space for them. MaxBytes does not bind it: a later checkpoint must contain each
// commit.
func (p *Pager) ReserveTreeTable(n uint64) error {
	before := p.reserved.treeTable
	if n <= p.treeTablePages() {
		return nil
	}
	p.reserved.treeTable = n
	err := p.reserve(0, 0, ForDelete)
	if err != nil {
		p.reserved.treeTable = before
	}
	return err
}

// freeMapPages is the part of the reserve for the free map of a file that is n pages longer: a page
// for each group, and the directory above them. These pages may need groups of their own, which are
// included.
func (p *Pager) freeMapPages(n uint64) (reserved uint64) {
	for pages := uint64(0); ; pages = reserved {
		groups := (p.space.end + n + pages + p.space.perGroup - 1) / p.space.perGroup
		reserved = groups + groups/uint64(p.groupsPerDir()) + 4
		if reserved <= pages {
			return reserved
		}
	}
}

// reserveLeafRun reserves n pages for the copies that the next Open makes of a leaf run.
func (p *Pager) reserveLeafRun(n uint64, purpose Purpose) error {
	p.reserved.leafRuns += n
	err := p.reserve(0, 0, purpose)
	if err != nil {
		p.ReleaseLeafRun(n)
	}
	return err
}

// ReleaseLeafRun unreserves the copies of n pages of WriteLeafRun whose transaction is rolled back:
// no record will refer to them.
func (p *Pager) ReleaseLeafRun(n uint64) { p.reserved.leafRuns -= n }

// captured accounts for a capture. AcceptReusable follows when its checkpoint is durable.
func (r *reservation) captured() {
	r.leafRuns, r.leafRunsBefore, r.treeTable = 0, r.leafRuns+r.leafRunsBefore, 0
}
