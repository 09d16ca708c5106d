package pager

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// field names the bytes [off, off+size) of a layout.
type field struct {
	off, size int
	remark    string
}

var headerFields = []field{
	{offChecksum, 8, "checksum"}, {offPgid, 8, "pgid"}, {offEpoch, 4, "epoch"}, {offKind, 1, "kind"},
	{offLevel, 1, "level"}, {offCount, 2, "count"},
}

func withHeader(fields ...field) []field {
	return append(append([]field(nil), headerFields...), fields...)
}

// requireGolden holds b against a golden file: offset, bytes and a remark per field, lines of zeros left out but for the
// first of each field. Bytes that no field names must be zero.
func requireGolden(t *testing.T, name, title string, fields []field, b []byte) {
	t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "# %s\n# %d bytes; lines of zeros are left out.\n", title, len(b))
	at := 0
	for _, f := range fields {
		require.Equal(t, make([]byte, f.off-at), b[at:f.off], "bytes of no field")
		for i := 0; i < f.size; i += 16 {
			row := b[f.off+i : f.off+min(i+16, f.size)]
			if i > 0 && bytes.Count(row, []byte{0}) == len(row) {
				continue
			}
			line := fmt.Sprintf("%06x  %-32x", f.off+i, row)
			if i == 0 {
				line += "  " + f.remark
			}
			text.WriteString(strings.TrimRight(line, " ") + "\n")
		}
		at = f.off + f.size
	}
	require.Equal(t, make([]byte, len(b)-at), b[at:], "bytes of no field")
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, strings.ReplaceAll(string(want), "\r\n", "\n"), text.String(), "the format has changed: see CONTRIBUTING.md")
	require.Equal(t, b, golden(t, name))
}

// golden reads the bytes of a golden file.
func golden(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	var b []byte
	for _, line := range strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n") {
		var n int
		if _, err := fmt.Sscanf(line, "# %d bytes;", &n); err == nil {
			b = make([]byte, n)
			continue
		}
		if line == "" || line[0] == '#' {
			continue
		}
		words := strings.Fields(line)
		off, err := strconv.ParseInt(words[0], 16, 64)
		require.NoError(t, err)
		raw, err := hex.DecodeString(words[1])
		require.NoError(t, err)
		copy(b[off:], raw)
	}
	return b
}

// goldenMeta has another value in each field.
var goldenMeta = Meta{
	Slot: 1, Epoch: 0x01020304, Clean: true, Optional: 5, StoreID: storeID, PageSize: 4096, SegmentSize: 4 << 20,
	Pages: 0x060708, LogStart: 0x1122334455, LogDurable: 0x1122334499, Root: Ref{0x0a0b, 0x01020303}, RootDepth: 3,
	RootRows: 0x0c0d0e, FreeDir: Ref{0x0f10, 0x01020302}, NextTree: 0x2021, NextTrash: 0x22, Seq: 0x232425,
	ClockMark: 1_700_000_000_123,
}

var metaFields = withHeader(
	field{offMagic, 8, `magic "Ebb kv\r\n"`}, field{offVersion, 4, "version"}, field{offFlags, 4, "flags: closed cleanly"},
	field{offRequired, 8, "required features"}, field{offOptional, 8, "optional features"}, field{offStoreID, 16, "store id"},
	field{offPageSize, 4, "page size"}, field{offSegSize, 4, "segment size"}, field{offPages, 8, "pages"},
	field{offLogStart, 8, "log start"}, field{offLogDurable, 8, "log durable"}, field{offRootPgid, 8, "root pgid"},
	field{offRootEpoch, 4, "root epoch"}, field{offRootDepth, 4, "root depth"}, field{offRootRows, 8, "root rows"},
	field{offFreePgid, 8, "free directory pgid"}, field{offFreeEpoch, 4, "free directory epoch"}, field{140, 4, "reserved"},
	field{offNextTree, 8, "next tree"}, field{offSeq, 8, "seq"}, field{offClockMark, 8, "clock mark"},
	field{offNextTrash, 8, "next trash"},
)

func TestMetaPageBytesArePinned(t *testing.T) {
	m := goldenMeta
	requireGolden(t, "meta.hex", "meta page 1 of a store that was closed cleanly", metaFields, appendMeta(nil, &m))
	got, err := decodeMeta(golden(t, "meta.hex"), 1)
	require.NoError(t, err)
	require.Equal(t, &m, got)
}

func TestPageHeaderBytesArePinned(t *testing.T) {
	b := make([]byte, MinPageSize)
	h := Header{Pgid: 0x1122334455, Epoch: 0x0a0b0c0d, Kind: KindBranch, Level: 2, Count: 0x0102}
	WriteHeader(b, h)
	Seal(b, Salt(storeID))
	requireGolden(t, "page-header.hex", "header of branch page 0x1122334455", headerFields, b)
	b = golden(t, "page-header.hex")
	require.True(t, Sealed(b, Salt(storeID)))
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
	requireGolden(t, "overflow.hex", "overflow extent of two pages", withHeader(
		field{offExtentSize, 8, "size"}, field{ExtentHeader, len(value), "value"}), b)
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
	require.NoError(t, p.Freed(refs[1].Pgid, 1))
	require.NoError(t, p.Freed(refs[2].Pgid, 1))
	checkpoint(t, p)
	return bed, p
}

func TestFreeMapBytesArePinned(t *testing.T) {
	bed, p := freeMapStore(t)
	var b []byte
	bed.rewrite(t, MinPageSize, p.space.groups[0].ref.Pgid, 1, false, func(c []byte) { b = append(b, c...) })
	requireGolden(t, "free-map.hex", "free map page of group 0", withHeader(field{HeaderSize, 16, "bits of pages 0 to 127"}), b)
	b = nil
	bed.rewrite(t, MinPageSize, p.freeDir().Pgid, 1, false, func(c []byte) { b = append(b, c...) })
	requireGolden(t, "free-directory.hex", "free directory of one group", withHeader(
		field{24, 8, "group 0: pgid"}, field{32, 4, "epoch"}, field{36, 4, "pages in use"}), b)
}

func TestFreeDirectoryOfTwoLevelsIsPinned(t *testing.T) {
	p := &Pager{pageSize: MinPageSize, salt: Salt(storeID), space: newSpace(MinPageSize)}
	for i := range 256 {
		p.space.groups = append(p.space.groups, &group{ref: Ref{Pgid(1000 + i), 9}, nUsed: uint32(i + 1)})
	}
	p.dirs = []Ref{{500, 9}, {501, 9}, {502, 9}}
	images := map[Pgid][]byte{}
	p.encodeDirectory(images)
	require.Len(t, images, 3)
	for _, b := range images {
		Seal(b, p.salt)
	}
	entry := func(i int, what string) []field {
		at := HeaderSize + dirEntry*i
		return []field{{at, 8, what + ": pgid"}, {at + 8, 4, "epoch"}, {at + 12, 4, "pages in use"}}
	}
	requireGolden(t, "free-directory-level-0.hex", "second free directory page of 256 groups",
		withHeader(append(entry(0, "group 254"), entry(1, "group 255")...)...), images[501])
	requireGolden(t, "free-directory-level-1.hex", "root of the free directory of 256 groups",
		withHeader(append(entry(0, "first page"), entry(1, "second page")...)...), images[502])
}

// future makes a file of the meta pages of a new store, changed, and both sealed.
func future(change func(b []byte)) []byte {
	var file []byte
	for slot := range 2 {
		m := Meta{Slot: slot, Epoch: Epoch(slot + 1), Clean: true, StoreID: storeID, PageSize: 4096, SegmentSize: 4 << 20, Pages: 2, NextTree: 4}
		b := appendMeta(nil, &m)
		change(b)
		Seal(b, Salt(storeID))
		file = append(file, b...)
	}
	return file
}

func TestFilesOfTheFutureAreErrVersion(t *testing.T) {
	both := slices.Clone(metaFields)
	for _, f := range metaFields {
		both = append(both, field{f.off + 4096, f.size, f.remark})
	}
	for _, test := range []struct {
		name, title string
		change      func(b []byte)
	}{
		{"next-version.hex", "a store of format version 2, 4 KiB pages", func(b []byte) { b[offVersion] = FormatVersion + 1 }},
		{"unknown-feature.hex", "a store that requires feature 2^63", func(b []byte) { b[offRequired+7] = 0x80 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			requireGolden(t, test.name, test.title, both, future(test.change))
			bed := memoryBed()
			writeFile(t, bed, golden(t, test.name))
			_, err := bed.tryOpen()
			require.ErrorIs(t, err, ErrVersion)
		})
	}
}
