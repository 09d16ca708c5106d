package pager

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// Free map page: the used pages of one group. The group's number is in the directory only.
//
//	24 bits: bit i of the u64 words, lowest first, is set if page group*PagesPerGroup + i is in use
//
// PagesPerGroup = (PageSize-24)/8*64. Golden bytes: testdata/free-map.hex.
//
// Free directory page, level 0: one entry of 16 bytes a group; level 1: one a directory page of
// level 0. The header's count is the number of entries. A zero reference stands for a group none of
// whose pages is in use.
//
//	24 + 16 i: pgid u64, epoch u32, used u32 (pages in use in the group; 0 in level 1)
//
// A store with one directory page of level 0 has no level 1. Golden bytes:
// testdata/free-directory.hex.
const dirEntry = 16

func (f *mainFile) entriesPerDir() int { return (f.pageSize - HeaderSize) / dirEntry }

// With Options.SmallGroups a group has smallGroup pages, and a directory page of level 0
// smallGroupsOfDir groups: a store of a megabyte has many of both. It is another format that no
// field of the file records: a file that is created with the option is opened with it.
const (
	smallGroup       = 64
	smallGroupsOfDir = 2
)

// groupsPerDir is the number of groups of a directory page of level 0.
func (f *mainFile) groupsPerDir() int {
	if f.o.SmallGroups {
		return smallGroupsOfDir
	}
	return f.entriesPerDir()
}

// MostPages is the capacity of a directory of two levels: 7.6 TiB of pages of 4 KiB, far more of
// larger ones.
func (a *Allocator) MostPages() uint64 { return a.space.most }

// startSpace begins the accounting of the file of meta page m, without its groups.
func (a *Allocator) startSpace(m *Meta) *space {
	s := newSpace(a.pageSize)
	if a.o.SmallGroups {
		s.perGroup = smallGroup
	}
	s.most = min(uint64(a.entriesPerDir())*uint64(a.groupsPerDir())*s.perGroup, maxPages)
	s.load = a.loadGroup
	s.bad = func(id Pgid, detail string) error { return a.corrupt(id, "%s", detail) }
	s.end, s.start, s.sparse = m.Pages, m.Pages, !a.o.ReadOnly
	if s.sparse { // pages behind the end may be holes, too
		a.Growth.size = min(a.Growth.length, int64(m.Pages)*int64(a.pageSize))
	}
	a.space, a.Growth.space, a.dirs = s, s, nil
	return s
}

// loadDirectory reads the free directory of meta page m. The free map pages are read on demand.
func (a *Allocator) loadDirectory(m *Meta) error {
	s := a.startSpace(m)
	if m.FreeDir.IsZero() { // a new store: nothing but the meta pages is in use
		s.addGroups()
		if err := s.markUsed(0, 2, false); err != nil {
			return err
		}
		s.groups[0].changed = false
		s.avail.n = 0
		if m.Pages > 2 {
			return a.corrupt(0, "meta page %d counts %d pages and has no free directory", m.Slot, m.Pages)
		}
		return nil
	}
	nGroups := int((m.Pages + s.perGroup - 1) / s.perGroup)
	b, err := a.spacePage(m.FreeDir, KindFreeDir)
	if err != nil {
		return err
	}
	level0 := []Ref{m.FreeDir}
	if h := ReadHeader(b); h.Level == 1 {
		refs, _, err := a.dirEntries(m.FreeDir, b, a.entriesPerDir())
		if err != nil {
			return err
		}
		level0 = refs
		a.dirs = append(append(a.dirs, refs...), m.FreeDir)
	} else {
		a.dirs = []Ref{m.FreeDir}
	}
	for _, ref := range level0 {
		if ref != m.FreeDir { // else b holds it
			if b, err = a.spacePage(ref, KindFreeDir); err != nil {
				return err
			}
		}
		if h := ReadHeader(b); h.Level != 0 {
			return a.corrupt(ref.Pgid, "free directory page of level %d where 0 belongs", h.Level)
		}
		refs, used, err := a.dirEntries(ref, b, nGroups-len(s.groups))
		if err != nil {
			return err
		}
		for i, r := range refs {
			s.groups = append(s.groups, &group{ref: r, nUsed: used[i]})
		}
	}
	if len(s.groups) != nGroups {
		const detail = "free directory has %d groups, the meta page counts %d"
		return a.corrupt(m.FreeDir.Pgid, detail, len(s.groups), nGroups)
	}
	s.avail.n = 0
	free := &s.avail
	if s.sparse {
		free = &s.holes
	}
	for no, g := range s.groups {
		pages := min(s.perGroup, s.end-uint64(no)*s.perGroup)
		if uint64(g.nUsed) > pages || (g.nUsed > 0 && g.ref.IsZero()) {
			return a.corrupt(m.FreeDir.Pgid, "group %d: %d of %d pages in use, free map page %v",
				no, g.nUsed, pages, g.ref)
		}
		free.n += pages - uint64(g.nUsed)
		s.nUsed += uint64(g.nUsed)
	}
	if s.groups[0].nUsed < 2 {
		return a.corrupt(m.FreeDir.Pgid, "free directory says that the meta pages are free")
	}
	return nil
}

func (a *Allocator) dirEntries(ref Ref, b []byte, most int) (refs []Ref, used []uint32, err error) {
	n := int(ReadHeader(b).Count)
	if n > a.entriesPerDir() || n > most || n == 0 {
		most = min(most, a.entriesPerDir())
		return nil, nil, a.corrupt(ref.Pgid,
			"free directory page with %d entries, at most %d belong", n, most)
	}
	refs, used = decodeDirectory(b)
	return refs, used, nil
}

// decodeDirectory decodes the entries of a free directory page, whose count was verified.
func decodeDirectory(b []byte) (refs []Ref, used []uint32) {
	for i := range int(ReadHeader(b).Count) {
		e := b[HeaderSize+i*dirEntry:]
		refs = append(refs, Ref{Pgid(binary.LittleEndian.Uint64(e)),
			Epoch(binary.LittleEndian.Uint32(e[8:]))})
		used = append(used, binary.LittleEndian.Uint32(e[12:]))
	}
	return refs, used
}

// loadGroup reads a group's free map page and checks it against the directory.
func (a *Allocator) loadGroup(g *group, no uint64) error {
	b, err := a.spacePage(g.ref, KindFreeMap)
	if err != nil {
		return err
	}
	for i := range g.used {
		g.used[i] = binary.LittleEndian.Uint64(b[HeaderSize+8*i:])
	}
	n := uint32(g.used.count())
	pages := min(a.space.perGroup, a.space.start-no*a.space.perGroup)
	if n != g.nUsed || nextBit(g.used, pages, false) < a.space.perGroup {
		return a.corrupt(g.ref.Pgid, "free map of group %d: %d pages in use, the directory says %d of %d",
			no, n, g.nUsed, pages)
	}
	if no == 0 && g.used[0]&3 != 3 {
		return a.corrupt(g.ref.Pgid, "free map says that a meta page is free")
	}
	return nil
}

// InUse reports whether the newest committed state uses a page, by the free map. Writer lock.
func (a *Allocator) InUse(id Pgid) (bool, error) {
	if uint64(id) >= a.space.end {
		return false, nil
	}
	g, i, err := a.space.at(id)
	if err != nil {
		return false, err
	}
	return g.used.has(i), nil
}

// Tail returns the first page such that the newest committed state uses at most n pages from it to
// the end of the file, rounded up by at most 63 pages. Writer lock.
func (a *Allocator) Tail(n uint64) (Pgid, error) {
	s := a.space
	for no := len(s.groups) - 1; no >= 0; no-- {
		g, first := s.groups[no], uint64(no)*s.perGroup
		if uint64(g.nUsed) <= n {
			n -= uint64(g.nUsed)
			continue
		}
		if _, _, err := s.at(Pgid(first)); err != nil {
			return 0, err
		}
		for i := len(g.used) - 1; i >= 0; i-- {
			c := uint64(bits.OnesCount64(g.used[i]))
			if c > n {
				return Pgid(min(first+uint64(i+1)*64, s.end)), nil
			}
			n -= c
		}
	}
	return 0, nil
}

// Fill returns the first page such that the unwritten pages behind it fit into the free pages
// before it, rounded up by at most 63 pages, or to the end of a group that is not loaded. Writer
// lock.
func (a *Allocator) Fill() Pgid {
	s := a.space
	free, unwritten := uint64(0), uint64(s.dirty.Load())
	for no, g := range s.groups {
		first := uint64(no) * s.perGroup
		if !g.loaded {
			pages := min(s.perGroup, s.end-first)
			if free += pages - uint64(g.nUsed); free >= unwritten {
				return Pgid(first + pages)
			}
		}
		for i := range g.avail {
			free += uint64(bits.OnesCount64(g.avail[i] | g.hole[i]))
			unwritten -= uint64(bits.OnesCount64(g.dirty[i]))
			if free >= unwritten {
				return Pgid(min(first+uint64(i+1)*64, s.end))
			}
		}
	}
	return Pgid(s.end)
}

// SpacePages returns the pages of the free map and its directory in the newest captured state.
// Writer lock.
func (a *Allocator) SpacePages() []Ref {
	refs := slices.Clone(a.dirs)
	for _, g := range a.space.groups {
		if !g.ref.IsZero() {
			refs = append(refs, g.ref)
		}
	}
	return refs
}

// captureFreeMap allocates a new free map page for each changed group, and new directory pages, and
// returns their images. The replaced pages are returned as freed: the last durable state uses them,
// this one does not.
//
// Allocating and freeing these pages changes groups, too, so the step repeats until each changed
// group has a new page. It terminates: a group allocates one page at most, and frees one.
func (a *Allocator) captureFreeMap(epoch Epoch) (images map[Pgid][]byte, freed []Ref, err error) {
	c := freeMapCapture{a: a, epoch: epoch, maps: map[uint64]Ref{}}
	err = c.dropOld()
	for again := true; again && err == nil; {
		again, err = c.step()
	}
	if err != nil {
		return nil, nil, err
	}
	images = make(map[Pgid][]byte, len(c.maps)+len(c.dirs))
	for no, ref := range c.maps {
		g := a.space.groups[no]
		g.ref, g.changed = ref, false
		images[ref.Pgid] = a.encodeFreeMap(ref, g.used)
	}
	a.dirs = c.dirs
	a.encodeDirectory(images)
	return images, c.freed, nil
}

// A freeMapCapture allocates the pages of captureFreeMap.
type freeMapCapture struct {
	a     *Allocator
	epoch Epoch
	maps  map[uint64]Ref // group -> new free map page
	dirs  []Ref          // new directory pages
	freed []Ref
}

func (c *freeMapCapture) allocate() (Ref, error) {
	id, err := c.a.allocate(AllocPolicy{Purpose: ForCheckpoint}, false)
	if err != nil {
		return Ref{}, err
	}
	return Ref{id, c.epoch}, c.a.space.markUsed(id, 1, false)
}

func (c *freeMapCapture) drop(ref Ref) error {
	c.freed = append(c.freed, ref)
	return c.a.space.markUnused(ref.Pgid, 1)
}

// dropOld drops the directory, and the groups behind the end of the file.
func (c *freeMapCapture) dropOld() error {
	for _, ref := range c.a.dirs {
		if err := c.drop(ref); err != nil {
			return err
		}
	}
	for s := c.a.space; len(s.groups) > 0 && uint64(len(s.groups)-1)*s.perGroup >= s.end; {
		last := s.groups[len(s.groups)-1]
		s.groups = s.groups[:len(s.groups)-1]
		if last.ref.IsZero() {
			continue
		}
		if err := c.drop(last.ref); err != nil {
			return err
		}
	}
	return nil
}

// step replaces the pages of the groups that have changed, and allocates the directory. again says
// that this has changed groups.
func (c *freeMapCapture) step() (again bool, err error) {
	s := c.a.space
	for no := uint64(0); no < uint64(len(s.groups)); no++ {
		g := s.groups[no]
		if _, has := c.maps[no]; !g.changed || has {
			continue
		}
		if !g.ref.IsZero() {
			if err := c.drop(g.ref); err != nil {
				return false, err
			}
			g.ref = Ref{}
			again = true // The old page's group has changed, and its number may be lower than no.
		}
		if g.nUsed == 0 {
			g.changed = false
			continue
		}
		if c.maps[no], err = c.allocate(); err != nil {
			return false, err
		}
		again = true
	}
	// All of the directory is rewritten: 254 groups of 127 MiB a page at 4 KiB pages.
	per := c.a.groupsPerDir()
	want := (len(s.groups) + per - 1) / per
	if want > 1 {
		want++
	}
	for len(c.dirs) < want {
		ref, err := c.allocate()
		if err != nil {
			return false, err
		}
		c.dirs = append(c.dirs, ref)
		again = true
	}
	return again, nil
}

func (a *Allocator) encodeFreeMap(ref Ref, used []uint64) []byte {
	b := make([]byte, a.pageSize)
	WriteHeader(b, Header{Pgid: ref.Pgid, Epoch: ref.Epoch, Kind: KindFreeMap})
	for i, w := range used {
		binary.LittleEndian.PutUint64(b[HeaderSize+8*i:], w)
	}
	return b
}

// encodeDirectory adds the images of the directory pages a.dirs: level 0 in order, then the root if
// level 0 has several pages.
func (a *Allocator) encodeDirectory(images map[Pgid][]byte) {
	per, groups := a.groupsPerDir(), a.space.groups
	page := func(ref Ref, level uint8, n int, entry func(i int) (Ref, uint32)) {
		b := make([]byte, a.pageSize)
		WriteHeader(b, Header{Pgid: ref.Pgid, Epoch: ref.Epoch, Kind: KindFreeDir, Level: level,
			Count: uint16(n)})
		for i := range n {
			r, used := entry(i)
			e := b[HeaderSize+i*dirEntry:]
			binary.LittleEndian.PutUint64(e, uint64(r.Pgid))
			binary.LittleEndian.PutUint32(e[8:], uint32(r.Epoch))
			binary.LittleEndian.PutUint32(e[12:], used)
		}
		images[ref.Pgid] = b
	}
	n0 := (len(groups) + per - 1) / per
	for d := range n0 {
		part := groups[d*per : min((d+1)*per, len(groups))]
		page(a.dirs[d], 0, len(part), func(i int) (Ref, uint32) { return part[i].ref, part[i].nUsed })
	}
	if n0 > 1 {
		page(a.dirs[n0], 1, n0, func(i int) (Ref, uint32) { return a.dirs[i], 0 })
	}
}

// freeDir is the root of the free directory. Only a store without any capture has none.
func (a *Allocator) freeDir() Ref { return a.dirs[len(a.dirs)-1] }
