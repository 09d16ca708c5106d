package pager

// Dead pages are pages that the newest state does not reach. Those that were read through the map
// stay in the memory of the process until the system reclaims it. A store that is overwritten
// repeatedly would keep its pages of each checkpoint there.

type pageRange struct{ from, to Pgid }

// minDeadRange is the shortest run of pages that is worth a system call.
const minDeadRange = 64

// deadRanges returns the runs of pages that the newest state does not reach, in loaded groups.
// Writer lock.
func (s *space) deadRanges() (runs []pageRange) {
	for no, g := range s.groups {
		first := uint64(no) * s.perGroup
		for at := uint64(0); g.loaded && at < s.perGroup; {
			lo := nextBit(g.used, at, true)
			at = min(nextBit(g.used, lo, false), s.perGroup)
			if end := min(first+at, s.end); end >= first+lo+minDeadRange {
				runs = append(runs, pageRange{Pgid(first + lo), Pgid(end)})
			}
		}
	}
	return runs
}

// dropFromPageCache drops pages from the memory of the process, and if memory is scarce from the page
// cache. A snapshot, or a reader of a page that was allocated there since, still reads the content of
// the file. It takes no lock.
func (f *mainFile) dropFromPageCache(runs []pageRange) {
	scarce := f.Scarce()
	for _, r := range runs {
		off, n := int64(r.from)*int64(f.pageSize), int64(r.to-r.from)*int64(f.pageSize)
		// A run that crosses two views stays mapped.
		if b, err := f.inFile(r.from, int(n)); err == nil {
			f.file.DontNeed(b)
		}
		if scarce {
			f.file.DropCache(off, n)
		}
	}
}

// dropBase drops the base of a delta that has been merged, if memory is scarce. Only snapshots read
// the base from now on. The system counts the read of the merge as an access, so it would keep bases
// longer than the pages that replace them.
func (f *mainFile) dropBase(id Pgid) {
	if f.mapped && f.Scarce() {
		f.dropFromPageCache([]pageRange{{id, id + 1}})
	}
}
