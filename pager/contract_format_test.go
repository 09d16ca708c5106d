package pager

import (
	"bytes"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/golden"
)

var headerFields = []golden.Field{
	{offChecksum, 8, "checksum"}, {offPgid, 8, "pgid"}, {offEpoch, 4, "epoch"}, {offKind, 1, "kind"},
	{offLevel, 1, "level"}, {offCount, 2, "count"},
}

func withHeader(fields ...golden.Field) []golden.Field {
	return append(append([]golden.Field(nil), headerFields...), fields...)
}

// goldenMeta has another value in each field.
var goldenMeta = Meta{
	Slot: 1, Epoch: 0x01020304, Clean: true, Optional: 5, StoreID: storeID, PageSize: 4096,
	SegmentSize: 4 << 20,
	Pages:       0x060708, LogStart: 0x1122334455, LogDurable: 0x1122334499, Root: Ref{0x0a0b,
		0x01020303}, RootDepth: 3,
	RootRows: 0x0c0d0e, FreeDir: Ref{0x0f10, 0x01020302}, NextTree: 0x2021, NextTrash: 0x22, Seq: 0x232425,
	ClockMark: 1_700_000_000_123,
}

var metaFields = withHeader(
	golden.Field{
		offMagic,
		8,
		`magic "Ebb kv\r\n"`,
	},
	golden.Field{offVersion, 4, "version"},
	golden.Field{offFlags, 4, "flags: closed cleanly"},
	golden.Field{
		offRequired,
		8,
		"required features",
	},
	golden.Field{offOptional, 8, "optional features"},
	golden.Field{offStoreID, 16, "store id"},
	golden.Field{
		offPageSize,
		4,
		"page size",
	},
	golden.Field{offSegSize, 4, "segment size"},
	golden.Field{offPages, 8, "pages"},
	golden.Field{
		offLogStart,
		8,
		"log start",
	},
	golden.Field{offLogDurable, 8, "log durable"},
	golden.Field{offRootPgid, 8, "root pgid"},
	golden.Field{
		offRootEpoch,
		4,
		"root epoch",
	},
	golden.Field{offRootDepth, 4, "root depth"},
	golden.Field{offRootRows, 8, "root rows"},
	golden.Field{
		offFreePgid,
		8,
		"free directory pgid",
	},
	golden.Field{offFreeEpoch, 4, "free directory epoch"},
	golden.Field{140, 4, "reserved"},
	golden.Field{
		offNextTree,
		8,
		"next tree",
	},
	golden.Field{offSeq, 8, "seq"},
	golden.Field{offClockMark, 8, "clock mark"},
	golden.Field{offNextTrash, 8, "next trash"},
)

func TestMetaPageBytesArePinned(t *testing.T) {
	m := goldenMeta
	golden.Require(
		t,
		"meta.hex",
		"meta page 1 of a store that was closed cleanly",
		metaFields,
		appendMeta(nil, &m),
	)
	got, err := decodeMeta(golden.Read(t, "testdata/meta.hex"), 1)
	require.NoError(t, err)
	require.Equal(t, &m, got)
}

// TestMetaPageHasTheRequiredFeaturesOfItsLog: one that needs no log requires nothing.
func TestMetaPageHasTheRequiredFeaturesOfItsLog(t *testing.T) {
	m := goldenMeta
	clean := appendMeta(nil, &m)
	m.Clean = false
	b := appendMeta(nil, &m)
	require.Equal(t, []byte{0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0}, b[offFlags:offOptional])
	require.Equal(t, []byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, clean[offFlags:offOptional])
	got, err := decodeMeta(b, 1)
	require.NoError(t, err)
	require.Equal(t, &m, got)
	copy(b[offFlags:], clean[offFlags:offOptional])
	copy(b[:offPgid], clean[:offPgid])
	require.Equal(t, clean, b, "nothing else differs")
}

func TestPageHeaderBytesArePinned(t *testing.T) {
	b := make([]byte, MinPageSize)
	h := Header{Pgid: 0x1122334455, Epoch: 0x0a0b0c0d, Kind: KindBranch, Level: 2, Count: 0x0102}
	WriteHeader(b, h)
	SetChecksum(b, Salt(storeID))
	golden.Require(t, "page-header.hex", "header of branch page 0x1122334455", headerFields, b)
	b = golden.Read(t, "testdata/page-header.hex")
	require.True(t, ChecksumMatches(b, Salt(storeID)))
	require.Equal(t, h, ReadHeader(b))
}

func TestOverflowExtentBytesArePinned(t *testing.T) {
	bed := memoryBed()
	p := bed.newPager(t, MinPageSize)
	value := append(bytes.Repeat([]byte("0123456789abcdef"), 3), make([]byte, 5000)...)
	value = append(value, "the end"...)
	ref := newExtent(t, p, value)
	checkpoint(t, p)
	var b []byte
	bed.rewrite(t, MinPageSize, ref.Pgid, 2, false, func(c []byte) { b = append(b, c...) })
	golden.Require(t, "overflow.hex", "overflow extent of two pages", withHeader(
		golden.Field{offExtentSize, 8, "size"}, golden.Field{ExtentHeader, len(value), "value"}), b)
}

// freeMapStore is a store of 11 pages with some in use.
func freeMapStore(t testing.TB) (bed, *Pager) {
	bed := memoryBed()
	p := bed.newPager(t, MinPageSize)
	var refs []Ref
	for i := range 6 {
		refs = append(refs, newPage(t, p, byte(i)))
	}
	checkpoint(t, p)
	require.NoError(t, p.Alloc.Freed(refs[1].Pgid, 1))
	require.NoError(t, p.Alloc.Freed(refs[2].Pgid, 1))
	checkpoint(t, p)
	return bed, p
}

func TestFreeMapBytesArePinned(t *testing.T) {
	bed, p := freeMapStore(t)
	var b []byte
	bed.rewrite(t, MinPageSize, p.Alloc.space.groups[0].ref.Pgid, 1, false,
		func(c []byte) { b = append(b, c...) })
	golden.Require(
		t,
		"free-map.hex",
		"free map page of group 0",
		withHeader(golden.Field{HeaderSize, 16, "bits of pages 0 to 127"}),
		b,
	)
	b = nil
	bed.rewrite(t, MinPageSize, p.Alloc.freeDir().Pgid, 1, false, func(c []byte) { b = append(b, c...) })
	golden.Require(t, "free-directory.hex", "free directory of one group", withHeader(
		golden.Field{24, 8, "group 0: pgid"}, golden.Field{32, 4, "epoch"}, golden.Field{36, 4,
			"pages in use"}), b)
}

func TestFreeDirectoryOfTwoLevelsIsPinned(t *testing.T) {
	f := &mainFile{pageSize: MinPageSize, salt: Salt(storeID)}
	p := &Allocator{mainFile: f, space: newSpace(MinPageSize)}
	for i := range 256 {
		p.space.groups = append(p.space.groups, &group{ref: Ref{Pgid(1000 + i), 9}, nUsed: uint32(i + 1)})
	}
	p.dirs = []Ref{{500, 9}, {501, 9}, {502, 9}}
	images := map[Pgid][]byte{}
	p.encodeDirectory(images)
	require.Len(t, images, 3)
	for _, b := range images {
		SetChecksum(b, p.salt)
	}
	entry := func(i int, what string) []golden.Field {
		at := HeaderSize + dirEntry*i
		return []golden.Field{{at, 8, what + ": pgid"}, {at + 8, 4, "epoch"}, {at + 12, 4, "pages in use"}}
	}
	golden.Require(t, "free-directory-level-0.hex", "second free directory page of 256 groups",
		withHeader(append(entry(0, "group 254"), entry(1, "group 255")...)...), images[501])
	golden.Require(t, "free-directory-level-1.hex", "root of the free directory of 256 groups",
		withHeader(append(entry(0, "first page"), entry(1, "second page")...)...), images[502])
}

// future makes a file of the meta pages of a new store, changed, and both sealed.
func otherVersionFile(change func(b []byte)) []byte {
	var file []byte
	for slot := range 2 {
		m := Meta{
			Slot:        slot,
			Epoch:       Epoch(slot + 1),
			Clean:       true,
			StoreID:     storeID,
			PageSize:    4096,
			SegmentSize: 4 << 20,
			Pages:       2,
			NextTree:    4,
		}
		b := appendMeta(nil, &m)
		change(b)
		SetChecksum(b, Salt(storeID))
		file = append(file, b...)
	}
	return file
}

func TestFilesOfOtherVersionsAreErrVersion(t *testing.T) {
	both := slices.Clone(metaFields)
	for _, f := range metaFields {
		both = append(both, golden.Field{Off: f.Off + 4096, Size: f.Size, Remark: f.Remark})
	}
	for _, test := range []struct {
		name, title string
		change      func(b []byte)
	}{
		{"earlier-version.hex", "a store of format version 1, 4 KiB pages",
			func(b []byte) { b[offVersion] = 1 }},
		{"next-version.hex", "a store of format version 5, 4 KiB pages",
			func(b []byte) { b[offVersion] = FormatVersion + 1 }},
		{"unknown-feature.hex", "a store that requires feature 2^63",
			func(b []byte) { b[offRequired+7] = 0x80 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			golden.Require(t, test.name, test.title, both, otherVersionFile(test.change))
			bed := memoryBed()
			writeFile(t, bed, golden.Read(t, filepath.Join("testdata", test.name)))
			_, err := bed.tryOpen()
			require.ErrorIs(t, err, ErrVersion)
		})
	}
}
