package pager

// Garbage is pages that the newest state does not reach. Those that were read through the map stay in the memory of the process until the
// system needs it for something else, and a store that is overwritten again and again would hold what it was at each checkpoint.

// span is the pages [from, to).
type span struct{ from, to Pgid }

// leastGarbage is the least run of pages that is worth a call.
const leastGarbage = 64

// garbage lists the runs of pages that the newest state does not reach, of groups that were read. Writer lock.
func (s *space) garbage() (runs []span) {
	for no, g := range s.groups {
		first := uint64(no) * s.perGroup
		for at := uint64(0); g.loaded && at < s.perGroup; {
			lo := nextBit(g.used, at, true)
			at = min(nextBit(g.used, lo, false), s.perGroup)
			if end := min(first+at, s.end); end >= first+lo+leastGarbage {
				runs = append(runs, span{Pgid(first + lo), Pgid(end)})
			}
		}
	}
	return runs
}

// letGo takes pages out of the memory of the process. A snapshot, or who reads a page that has been born there since, finds what the
// file has all the same. No lock is needed.
func (p *Pager) letGo(runs []span) {
	for _, r := range runs {
		if b, err := p.inFile(r.from, int(r.to-r.from)*p.pageSize); err == nil { // One that lies in two views stays.
			p.file.LetGo(b)
		}
	}
}
