package crashfs

import (
	"math/rand/v2"
)

// enumeration tries recipes at one point after the other.
type enumeration struct {
	opts    *ImageOptions
	yield   func(*Image) bool
	stopped bool
	p       point
	profile Profile
	oneOf   uint64 // of so many images of the profile one is taken
	tried   uint64 // images at this point, taken or not
	expects uint64 // of images at this point, beyond the marks
	r       recipe // the one that is tried next
	rnd     *rand.Rand
}

// all goes through the profiles at a point.
func (e *enumeration) all() {
	p := &e.p
	e.tried, e.expects = 0, 0
	if e.opts.Expects != nil {
		e.expects = mix(e.opts.Expects(p.w.pos))
	}
	e.rnd = rand.New(rand.NewPCG(e.opts.Seed, uint64(p.w.pos)))
	e.r = recipe{tornSeq: -1, keep: make(bits, p.words())}
	for _, step := range []struct {
		profile Profile
		run     func()
	}{
		{Kill, e.kill}, {None, e.none}, {Prefix, e.prefix}, {Reorder, e.reorder},
		{Torn512, e.torn}, {Torn4K, e.torn4k}, {Shorn, e.torn}, {Dirs, e.dirs}, {Size, e.size},
		{Stale, e.stale},
	} {
		if e.stopped {
			return
		}
		if e.profile = step.profile; e.opts.Profiles&e.profile != 0 {
			e.oneOf = 1
			if e.opts.OneOf != nil {
				e.oneOf = uint64(max(e.opts.OneOf(e.profile), 1))
			}
			e.keepAll(false)
			step.run()
			e.r.tornSeq, e.r.lost, e.r.noise, e.r.stale, e.r.live = -1, nil, false, staleNone, false
		}
	}
}

// try yields the image of e.r if it is new.
func (e *enumeration) try() {
	if e.stopped {
		return
	}
	e.tried++
	if e.oneOf > 1 && mix(e.opts.Seed+mix(uint64(e.p.w.pos)<<32+e.tried))%e.oneOf != 0 {
		return
	}
	hash := e.p.build(&e.r)
	acked := e.p.marks.Acked
	if e.profile == Kill {
		acked = max(acked, e.p.marks.Relaxed)
	}
	// The same bytes must be judged again once they are expected to hold more. Begun only rises,
	// and asks for less.
	if e.opts.Seen.add(mix(hash + mix(acked+1) + mix(e.opts.Salt^0x5bd1e995) + e.expects)) {
		e.stopped = !e.yield(e.p.image(&e.r, e.profile, hash))
	}
}

// keepAll keeps everything pending, or nothing of it. Soft growths stay.
func (e *enumeration) keepAll(all bool) {
	if all {
		e.r.keep.fill(len(e.p.units))
		return
	}
	clear(e.r.keep)
	for i := range e.p.soft {
		e.r.keep.add(i)
	}
}

func (e *enumeration) set(group int, keep bool) {
	for i := e.p.groups[group][0]; i < e.p.groups[group][1]; i++ {
		e.put(i, keep)
	}
}

func (e *enumeration) put(i int, keep bool) {
	if keep {
		e.r.keep.add(i)
	} else {
		e.r.keep.del(i)
	}
}

func (e *enumeration) kill() {
	e.r.live = true
	e.try()
}

func (e *enumeration) none() { e.try() }

func (e *enumeration) prefix() {
	e.try()
	for g := range e.p.groups {
		e.set(g, true)
		e.try()
	}
}

func (e *enumeration) reorder() {
	n := len(e.p.groups)
	switch {
	case e.opts.Random > 0:
		e.random(e.opts.Random, e.rnd.IntN(101))
	case n <= allSubsets:
		for subset := range 1 << n {
			for g := range n {
				e.set(g, subset>>g&1 != 0)
			}
			e.try()
		}
	default:
		e.manyReordered(n)
	}
}

// manyReordered takes the subsets that are likely to matter where there are too many.
func (e *enumeration) manyReordered(n int) {
	for _, all := range []bool{false, true} {
		e.keepAll(all) // Each one alone, each one lost.
		for g := range n {
			e.set(g, !all)
			e.try()
			e.set(g, all)
		}
		e.keepAll(all) // Suffixes, prefixes.
		for g := n - 1; g >= 0; g-- {
			e.set(g, !all)
			e.try()
		}
		if n <= allPairs {
			e.keepAll(all)
			for g := range n {
				e.set(g, !all)
				for h := g + 1; h < n; h++ {
					e.set(h, !all)
					e.try()
					e.set(h, all)
				}
				e.set(g, all)
			}
		}
	}
	e.perFile(n)
	for _, percent := range []int{10, 50, 90} {
		e.random(randomSubsets, percent)
	}
}

// perFile keeps all or nothing of each file; entry changes count as one more file.
func (e *enumeration) perFile(n int) {
	part := map[int]int{} // inode, or 0 for entries, to bit
	of := make([]int, n)
	for g := range n {
		u := &e.p.units[e.p.groups[g][0]]
		ino := u.ino
		if u.kind >= unitAdd {
			ino = 0
		}
		if _, ok := part[ino]; !ok {
			part[ino] = len(part)
		}
		of[g] = part[ino]
	}
	for subset := range 1 << min(len(part), allFiles) {
		for g := range n {
			e.set(g, subset>>min(of[g], allFiles-1)&1 != 0)
		}
		e.try()
	}
}

func (e *enumeration) random(count, percent int) {
	for range count {
		for g := range e.p.groups {
			e.set(g, e.rnd.IntN(100) < percent)
		}
		e.try()
	}
}

// pendingWrites gives the numbers of the last pending writes, newest first.
func (e *enumeration) pendingWrites() []int {
	var seqs []int
	for i := len(e.p.units) - 1; i >= e.p.soft && len(seqs) < lastWrites; i-- {
		u := &e.p.units[i]
		if u.kind == unitData && (len(seqs) == 0 || seqs[len(seqs)-1] != u.seq) {
			seqs = append(seqs, u.seq)
		}
	}
	return seqs
}

// contexts calls fn with everything else kept, and with everything after the write lost.
func (e *enumeration) contexts(seq int, fn func()) {
	e.keepAll(true)
	fn()
	later := false
	for g := range e.p.groups {
		if e.p.units[e.p.groups[g][0]].seq > seq {
			e.set(g, false)
			later = true
		}
	}
	if later {
		fn()
	}
}

// torn is Torn512 and Shorn.
func (e *enumeration) torn() {
	e.r.noise = e.profile == Shorn
	for _, seq := range e.pendingWrites() {
		n := sectors(&e.p.w.ops[seq])
		e.r.tornSeq, e.r.lost = seq, make(bits, (n+63)/64)
		e.contexts(seq, func() {
			lost := e.r.lost
			lost.fill(n) // Sectors from s on are lost.
			for s := range n {
				if takeSector(s, n) {
					e.try()
				}
				lost.del(s)
			}
			for s := range n { // Only s is lost.
				if takeSector(s, n) {
					lost.add(s)
					e.try()
					lost.del(s)
				}
			}
			lost.fill(n) // Only s is kept.
			for s := range n {
				if takeSector(s, n) {
					lost.del(s)
					e.try()
					lost.add(s)
				}
			}
		})
	}
}

func takeSector(s, n int) bool {
	return n <= allSectors || s < sectorsPerBlock || s >= n-sectorsPerBlock || s%sectorsPerBlock == 0
}

func (e *enumeration) torn4k() {
	for _, seq := range e.pendingWrites() {
		var of []int // the write's blocks
		for i := e.p.soft; i < len(e.p.units); i++ {
			if u := &e.p.units[i]; u.seq == seq && u.kind == unitData {
				of = append(of, i)
			}
		}
		if len(of) < 2 {
			continue
		}
		e.contexts(seq, func() {
			for _, i := range of { // Lost alone.
				e.put(i, false)
				e.try()
				e.put(i, true)
			}
			for _, i := range of {
				e.put(i, false)
			}
			for _, i := range of { // Kept alone.
				e.put(i, true)
				e.try()
				e.put(i, false)
			}
			for _, i := range of {
				e.put(i, true)
			}
		})
	}
}

// dirs takes renames apart: the old name, the new one or both may be there, but not neither.
func (e *enumeration) dirs() {
	var of []int
	for i := e.p.soft; i < len(e.p.units); i++ {
		if e.p.units[i].kind >= unitAdd {
			of = append(of, i)
		}
	}
	n := len(of)
	if n == 0 {
		return
	}
	for _, data := range []bool{true, false} {
		e.keepAll(data)
		switch {
		case e.opts.Random > 0:
			for range e.opts.Random {
				e.entries(of, e.rnd.Uint64())
			}
		case n <= allEntries:
			for subset := range uint64(1) << n {
				e.entries(of, subset)
			}
		default:
			n = min(n, 64)
			of := of[len(of)-n:]
			for i := range n {
				e.entries(of, 1<<i)
				e.entries(of, ^uint64(1<<i))
				e.entries(of, 1<<i-1)
				e.entries(of, ^uint64(1<<i-1))
			}
			for range randomSubsets {
				e.entries(of, e.rnd.Uint64())
			}
		}
	}
}

// entries tries one subset of the entry changes.
func (e *enumeration) entries(of []int, subset uint64) {
	for b, i := range of {
		keep := subset>>b&1 != 0
		if u := &e.p.units[i]; keep && u.kind == unitDel && i > e.p.soft {
			if add := &e.p.units[i-1]; add.kind == unitAdd && add.seq == u.seq && !e.r.keep.has(i-1) {
				return
			}
		}
		e.put(i, keep)
	}
	e.try()
}

// size loses sizes, with all the rest kept and with all the rest lost.
func (e *enumeration) size() {
	of := e.unitsOf(unitGrow, unitShrink)
	for _, rest := range []bool{true, false} {
		for _, i := range of {
			e.keepAll(rest)
			for _, j := range of {
				e.put(j, true)
			}
			e.put(i, false)
			e.try()
		}
		e.keepAll(rest)
		for _, i := range of {
			e.put(i, false)
		}
		e.try()
	}
}

// unitsOf lists the units, soft ones too, of the kinds [lo, hi].
func (e *enumeration) unitsOf(lo, hi unitKind) []int {
	var of []int
	for i := range e.p.units {
		if k := e.p.units[i].kind; lo <= k && k <= hi {
			of = append(of, i)
		}
	}
	return of
}

// stale needs space that persisted without the data in it: all sizes are kept, but not all data.
func (e *enumeration) stale() {
	sizes, data := e.unitsOf(unitGrow, unitShrink), e.unitsOf(unitData, unitData)
	if len(sizes) == e.p.soft {
		return // Nothing has grown.
	}
	if len(data) > staleBlocks {
		data = data[len(data)-staleBlocks:]
	}
	for _, fill := range []staleFill{staleNewest, staleOldest, staleGarbage} {
		if fill != staleGarbage && len(e.p.w.dead) == 0 {
			continue
		}
		e.r.stale = fill
		e.keepAll(false) // Nothing but the sizes; only files whose names are durable.
		for _, i := range sizes {
			e.put(i, true)
		}
		e.try()
		for _, i := range e.unitsOf(unitAdd, unitDel) { // The names too; then the data one by one.
			e.put(i, true)
		}
		e.try()
		for _, i := range data {
			e.put(i, true)
			e.try()
		}
		e.keepAll(true)
		for _, i := range data { // Each block lost alone.
			e.put(i, false)
			e.try()
			e.put(i, true)
		}
		for _, i := range e.unitsOf(unitData, unitData) { // Each size lost alone, and the data.
			e.put(i, false)
		}
		for _, i := range sizes[e.p.soft:] {
			e.put(i, false)
			e.try()
			e.put(i, true)
		}
	}
}
