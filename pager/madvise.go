package pager

// Garbage is pages that the newest state does not reach. Those that were read through the map stay
// in the memory of the process until the system needs it for something else, and a store that is
// overwritten again and again would hold what it was at each checkpoint.

// pageRange is the pages [from, to).
type pageRange struct{ from, to Pgid }

// minDeadRange is the least run of pages that is worth a call.
const minDeadRange = 64

// deadRanges lists the runs of pages that the newest state does not reach, of groups that were
// read. Writer lock.
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

// dropFromPageCache takes pages out of the memory of the process. A snapshot, or who reads a page
// that has been born there since, finds what the file has all the same. No lock is needed.
func (p *Pager) dropFromPageCache(runs []pageRange) {
	for _, r := range runs {
		// One that lies in two views stays.
		if b, err := p.inFile(r.from, int(r.to-r.from)*p.pageSize); err == nil {
			p.file.LetGo(b)
		}
	}
}
