package fuzz

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	"github.com/ebbkv/ebb/pager"
)

// A field is a number, or a reference, that a file has at a place which docs/format.md tells of.
type field struct {
	file  string
	class string // fields of a class may stand for each other: page numbers, counts ...
	parts []part // one; two of a reference, its page number and its epoch
}

type part struct{ at, size int }

// fields lists what there is to be forged in the files of a store, in order. It reads no further
// than the files go, whatever they say: some of it may have been forged before.
func fields(files map[string][]byte) []field {
	l := &lister{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		l.file, l.b = name, files[name]
		switch {
		case name == mainFile():
			for at := 0; at+specimenPage <= len(l.b); at += specimenPage {
				l.page(at)
			}
		case strings.Contains(name, "-wal-"):
			l.segment()
		}
	}
	return l.all
}

type lister struct {
	file string
	b    []byte
	all  []field
}

// add notes a field, given by pairs of place and size.
func (l *lister) add(class string, places ...int) {
	f := field{file: l.file, class: class}
	for i := 0; i < len(places); i += 2 {
		if places[i] < 0 || places[i]+places[i+1] > len(l.b) {
			return
		}
		f.parts = append(f.parts, part{places[i], places[i+1]})
	}
	l.all = append(l.all, f)
}

func (l *lister) page(at int) {
	h := pager.ReadHeader(l.b[at : at+specimenPage])
	if h.Kind < pager.KindMeta || h.Kind > pager.KindFreeDir {
		return // nothing was ever there, or it is in the middle of an extent
	}
	l.add("pgid", at+8, 8)
	l.add("epoch", at+16, 4)
	l.add("kind", at+20, 1)
	l.add("level", at+21, 1)
	l.add("count", at+22, 2)
	n := min(int(h.Count), specimenPage/8)
	switch h.Kind {
	case pager.KindMeta:
		l.meta(at)
	case pager.KindLeaf:
		l.leaf(at, n)
	case pager.KindBranch:
		l.branch(at, n)
	case pager.KindOverflow:
		l.add("size", at+extentSizeAt, 8)
	case pager.KindFreeMap:
		for i := range 3 {
			l.add("bits", at+24+8*i, 8)
		}
	case pager.KindFreeDir:
		for i := range n {
			e := at + 24 + 16*i
			l.add("ref", e, 8, e+8, 4)
			l.add("count", e+12, 4)
		}
	}
}

func (l *lister) meta(at int) {
	for _, f := range []struct {
		class    string
		at, size int
	}{
		{"flags", 36, 4}, {"flags", 40, 8}, {"size", 72, 4}, {"size", 76, 4}, {"pages", 80, 8},
		{"lsn", 88, 8}, {"lsn", 96, 8},
		{"depth", 116, 4}, {"rows", 120, 8}, {"tree", 144, 8}, {"seq", 152, 8}, {"time", 160, 8},
		{"tree", 168, 8},
	} {
		l.add(f.class, at+f.at, f.size)
	}
	l.add("ref", at+104, 8, at+112, 4)
	l.add("ref", at+128, 8, at+136, 4)
}

// leaf notes the cells, and the values as numbers: rows of the tree table, of the catalog and of
// the key index are values.
func (l *lister) leaf(at, n int) {
	l.add("place", at+24, 4)
	l.add("place", at+28, 2)
	l.add("place", at+30, 2)
	l.add("klen", at+32, 2)
	l.add("vinfo", at+34, 4)
	uniform := binary.LittleEndian.Uint16(l.b[at+32:]) != 0
	for i := range n {
		slot := at + 40 + 4*n + 2*i
		if slot+2 > at+specimenPage {
			return
		}
		l.add("head", at+40+4*i, 4)
		l.add("place", slot, 2)
		cell := at + int(binary.LittleEndian.Uint16(l.b[slot:]))
		if cell+6 > at+specimenPage {
			continue
		}
		header, body := at+32, cell
		if !uniform {
			header, body = cell, cell+6
			l.add("klen", header, 2)
			l.add("vinfo", header+2, 4)
		}
		klen, info := int(binary.LittleEndian.Uint16(l.b[header:])),
			binary.LittleEndian.Uint32(l.b[header+2:])
		value, size := body+klen, int(info&(1<<30-1))
		if info&(1<<31) != 0 {
			l.add("time", value, 8)
			value += 8
		}
		switch {
		case info&(1<<30) != 0:
			l.add("ref", value, 8, value+8, 4)
		case size == 24: // tree table
			l.add("ref", value, 8, value+16, 4)
			l.add("rows", value+8, 8)
			l.add("depth", value+20, 1)
			l.add("tree", value-8, 8)
		case size == 40: // catalog
			l.add("kind", value, 1)
			l.add("tree", value+8, 8)
			l.add("time", value+16, 8)
		case size <= 8: // an index: a time in the value, or before the key
			l.add("time", body, 8)
			l.add("time", value, 8)
		}
	}
}

func (l *lister) branch(at, n int) {
	l.add("place", at+24, 4)
	l.add("place", at+28, 2)
	l.add("place", at+30, 2)
	for i := range n {
		c := at + 32 + 8*n + 24*i
		l.add("head", at+32+8*i, 8)
		l.add("ref", c, 8, c+16, 4)
		l.add("rows", c+8, 8)
		l.add("place", c+20, 2)
		l.add("place", c+22, 2)
	}
}

func (l *lister) segment() {
	l.add("size", 12, 4)
	l.add("seq", 32, 8)
	l.add("salt", 40, 8)
	l.add("size", 48, 8)
	l.add("epoch", 56, 4)
	l.add("salt", noteBlock, 8)
	l.add("lsn", noteBlock+8, 8)
	for at := recordsAt; at+recordHead <= len(l.b); {
		size := int(binary.LittleEndian.Uint32(l.b[at+recordLength:]))
		if left := segmentSector - at%segmentSector; left < recordHead || l.b[at+44] == 0 {
			at += left
			continue
		}
		for _, lsn := range []int{16, 24, 32} {
			l.add("lsn", at+lsn, 8)
		}
		l.add("salt", at+8, 8)
		l.add("size", at+recordLength, 4)
		l.add("kind", at+44, 1)
		l.add("flags", at+45, 1)
		if size >= 16 {
			l.add("seq", at+recordHead, 8)
			l.add("time", at+recordHead+8, 8)
			for i := 16; i < min(size, 48); i++ { // operations are varints: kind, tree, lengths, references
				l.add("byte", at+recordHead+i, 1)
			}
		}
		if size < 0 || size > len(l.b) {
			return
		}
		at += recordHead + size
	}
}

// Ways to forge a field, by the length byte of an edit.
const (
	forgeSet  = iota // value, cut to the size of the field
	forgeUp          // one more
	forgeDown        // one less
	// what another field of the class has: that is how two parents come to one page, and a page to
	// be its own child
	forgeCopy
	forgeBit // one bit is turned
	forgeWays
)

// forge changes one field of a store's files; e is an edit whose page and place tell which.
func forge(files map[string][]byte, e []byte) {
	all := fields(files)
	if len(all) == 0 {
		return
	}
	f := all[(int(e[2])<<16|int(binary.LittleEndian.Uint16(e[3:])))%len(all)]
	value := binary.LittleEndian.Uint64(e[6:])
	b := files[f.file]
	if e[5]%forgeWays == forgeCopy {
		var sameClass []field
		for _, g := range all {
			if g.class == f.class && len(g.parts) == len(f.parts) {
				sameClass = append(sameClass, g)
			}
		}
		g := sameClass[value%uint64(len(sameClass))]
		for i, p := range f.parts {
			setNumber(b, p, number(files[g.file], g.parts[i]))
		}
		return
	}
	p := f.parts[value>>56%uint64(len(f.parts))] // of a reference either
	switch was := number(b, p); e[5] % forgeWays {
	case forgeSet:
		setNumber(b, p, value)
	case forgeUp:
		setNumber(b, p, was+1)
	case forgeDown:
		setNumber(b, p, was-1)
	case forgeBit:
		setNumber(b, p, was^1<<(value%uint64(8*p.size)))
	}
}

func number(b []byte, p part) uint64 {
	var w [8]byte
	copy(w[:], b[p.at:p.at+p.size])
	return binary.LittleEndian.Uint64(w[:])
}

func setNumber(b []byte, p part, n uint64) {
	var w [8]byte
	binary.LittleEndian.PutUint64(w[:], n)
	copy(b[p.at:p.at+p.size], w[:])
}
