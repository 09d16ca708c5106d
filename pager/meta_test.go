package pager

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/bound"
	"github.com/ebbkv/ebb/internal/golden"
	"github.com/ebbkv/ebb/internal/vfs"
)

func writeFile(t testing.TB, b bed, content []byte) {
	t.Helper()
	f, err := b.fs.Open(b.path, vfs.Write|vfs.Create)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(0))
	require.NoError(t, vfs.WriteFull(f, content, 0))
	require.NoError(t, f.Close())
}

func TestEveryFieldOfAMetaPageIsVerified(t *testing.T) {
	u32 := func(off int, v uint32) func(b []byte) {
		return func(b []byte) { binary.LittleEndian.PutUint32(b[off:], v) }
	}
	u64 := func(off int, v uint64) func(b []byte) {
		return func(b []byte) { binary.LittleEndian.PutUint64(b[off:], v) }
	}
	for _, test := range []struct {
		name   string
		change func(b []byte)
		want   string
	}{
		{"kind", func(b []byte) { b[offKind] = byte(KindLeaf) }, "leaf page"},
		{"number", u64(offPgid, 0), "with number 0"},
		{"level", func(b []byte) { b[offLevel] = 1 }, "level 1"},
		{"count", func(b []byte) { b[offCount] = 1 }, "count 1"},
		{"flags", u32(offFlags, 3), "flags"},
		{"page_size", u32(offPageSize, 8192), "page size 8192"},
		{"epoch_zero", u32(offEpoch, 0), "epoch 0"},
		{"epoch_too_high", u32(offEpoch, uint32(MaxEpoch)), "epoch"},
		{"segment_size_zero", u32(offSegSize, 0), "segment size 0"},
		{"segment_size_small", u32(offSegSize, 8192), "segment size 8192"},
		{"segment_size_large", u32(offSegSize, 2<<30), "segment size"},
		{"segment_size_odd", u32(offSegSize, 65537), "segment size 65537"},
		{"no_pages", u64(offPages, 1), "page count 1"},
		{"too_many_pages", u64(offPages, 1<<44+1), "page count"},
		{"root_past_the_end", u64(offRootPgid, goldenMeta.Pages), "past the last page"},
		{"root_is_a_meta_page", u64(offRootPgid, 1), "meta page"},
		{"root_of_the_future", u32(offRootEpoch, uint32(goldenMeta.Epoch)+1), "newer than"},
		{"free_directory_past_the_end", u64(offFreePgid, goldenMeta.Pages), "past the last page"},
		{"free_directory_is_a_meta_page", u64(offFreePgid, 1), "meta page"},
		{"free_directory_of_the_future", u32(offFreeEpoch, uint32(goldenMeta.Epoch)+1), "newer than"},
		{"depth_without_root", u64(offRootPgid, 0), "depth 3"},
		{"root_without_depth", u32(offRootDepth, 0), "depth 0"},
		{"depth_above_the_limit", u32(offRootDepth, maxTreeDepth+1), "depth 65"},
		{"depth_of_more_than_a_byte", u32(offRootDepth, 256), "depth 256"},
		{"log_starts_behind_every_segment", u64(offLogStart, 1<<63), "log"},
		{"log_durable_behind_every_segment", u64(offLogDurable, 1<<63), "log"},
		{"tree_numbers_used_up", u64(offNextTree, 1<<63), "tree"},
		{"trash_numbers_used_up", u64(offNextTrash, 1<<63), "trash"},
		{"reserved", u32(140, 1), "zero"},
		{"end_of_the_page", func(b []byte) { b[len(b)-1] = 1 }, "zero"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := golden.Read(t, "testdata/meta.hex")
			test.change(b)
			SetChecksum(b, Salt(storeID))
			_, err := decodeMeta(b, 1)
			require.ErrorContains(t, err, test.want)
			require.NotErrorIs(t, err, ErrVersion)
			require.NotErrorIs(t, err, ErrNotStore)
		})
	}
	t.Run("every_bit_but_the_magic_is_under_the_checksum", func(t *testing.T) {
		for at := range metaEnd {
			b := golden.Read(t, "testdata/meta.hex")
			b[at] ^= 0x10
			_, err := decodeMeta(b, 1)
			if at >= offMagic && at < offMagic+8 {
				require.ErrorIs(t, err, ErrNotStore)
			} else {
				require.ErrorContains(t, err, "wrong checksum")
			}
		}
	})
}

func TestReadMetasDistinguishesFiles(t *testing.T) {
	pair := func(pageSize int) []byte {
		var file []byte
		for slot := range 2 {
			m := Meta{
				Slot:        slot,
				Epoch:       Epoch(3 - slot),
				StoreID:     storeID,
				PageSize:    pageSize,
				SegmentSize: 64 << 10,
				Pages:       2,
				NextTree:    4,
			}
			file = append(file, appendMeta(nil, &m)...)
		}
		return file
	}
	spoil := func(file []byte, at int) []byte { file[at] ^= 1; return file }
	newer := func(file []byte, slot int) []byte { // a later version has written this page
		page := file[slot*4096:][:4096]
		binary.LittleEndian.PutUint32(page[offVersion:], FormatVersion+1)
		SetChecksum(page, Salt(storeID))
		return file
	}
	for _, test := range []struct {
		name string
		file []byte
		has  [2]bool
		want error
	}{
		{"both_valid", pair(4096), [2]bool{true, true}, nil},
		{"pages_of_8_KiB", pair(8192), [2]bool{true, true}, nil},
		{"pages_of_64_KiB", pair(65536), [2]bool{true, true}, nil},
		{"first_damaged", spoil(pair(4096), 100), [2]bool{false, true}, nil},
		{"magic_of_the_first_damaged", spoil(pair(4096), offMagic), [2]bool{false, true}, nil},
		{"second_damaged", spoil(pair(4096), 4196), [2]bool{true, false}, nil},
		{"first_damaged_pages_of_16_KiB", spoil(pair(16384), 100), [2]bool{false, true}, nil},
		{"first_damaged_pages_of_64_KiB", spoil(pair(65536), 100), [2]bool{false, true}, nil},
		{"both_damaged", spoil(spoil(pair(4096), 100), 4196), [2]bool{}, badfile.ErrCorrupt},
		{"one_magic_and_one_page_damaged", spoil(spoil(pair(4096), offMagic), 4196), [2]bool{},
			badfile.ErrCorrupt},
		{"newer_first", newer(pair(4096), 0), [2]bool{}, ErrVersion},
		{"newer_second", newer(pair(4096), 1), [2]bool{}, ErrVersion},
		{"empty", nil, [2]bool{}, badfile.ErrCorrupt},
		{"one_page", pair(4096)[:4096], [2]bool{true, false}, nil},
		{"cut_in_the_first_page", pair(4096)[:4095], [2]bool{}, badfile.ErrCorrupt},
		{"cut_in_the_header", pair(4096)[:20], [2]bool{}, badfile.ErrCorrupt},
		{"cut_behind_the_kind", pair(4096)[:22], [2]bool{}, badfile.ErrCorrupt},
		{"cut_in_the_second_page", pair(4096)[:8000], [2]bool{true, false}, nil},
		{"zeros", make([]byte, 20000), [2]bool{}, badfile.ErrCorrupt},
		{"a_few_zeros", make([]byte, 5), [2]bool{}, badfile.ErrCorrupt},
		{"text", bytes.Repeat([]byte("somebody else's file\n"), 1000), [2]bool{}, ErrNotStore},
		{"short_text", []byte("somebody else's short file, 50 bytes or so of text"), [2]bool{}, ErrNotStore},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := memoryBed()
			writeFile(t, b, test.file)
			f, err := b.fs.Open(b.path, 0)
			require.NoError(t, err)
			metas, err := readMetas(f, "a.ebb")
			require.ErrorIs(t, err, test.want)
			for slot, m := range metas {
				require.Equal(t, test.has[slot], m != nil, "meta page %d", slot)
				if m != nil {
					require.Equal(t, Epoch(3-slot), m.Epoch)
				}
			}
		})
	}
}

func TestReadErrorsAreNotCorruption(t *testing.T) {
	b := memoryBed()
	b.create(t, 4096)
	f, err := b.fs.Open(b.path, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	_, err = readMetas(f, "a.ebb")
	require.Error(t, err)
	require.NotErrorIs(t, err, badfile.ErrCorrupt)
}

func TestMetaPagesAreWrittenInTurn(t *testing.T) {
	b := memoryBed()
	p := b.newPager(t, 4096)
	for epoch := Epoch(2); epoch < 6; epoch++ {
		m := p.LastMeta()
		m.Epoch = epoch
		require.NoError(t, p.WriteMeta(m))
		got := p.LastMeta()
		require.Equal(t, epoch, got.Epoch)
		require.Equal(t, int(epoch-1)%2, got.Slot)
	}
	older := p.LastMeta()
	older.Slot = 1 - older.Slot
	p.Prefer(&older)
	m := p.LastMeta()
	m.Epoch = 7
	require.NoError(t, p.WriteMeta(m))
	require.NotEqual(t, older.Slot, p.LastMeta().Slot, "what is preferred is kept")
}

func FuzzMeta(f *testing.F) {
	f.Add(golden.Read(f, "testdata/meta.hex"), true)
	f.Add(golden.Read(f, "testdata/next-version.hex"), false)
	f.Add([]byte("Ebb"), false)
	f.Fuzz(func(t *testing.T, file []byte, seal bool) {
		defer bound.Hold(t, 16<<20)()
		if len(file) > 1<<18 {
			return
		}
		if n := len(file); seal && n >= metaEnd {
			// Make the first page one that only its fields can be wrong in.
			ps := int(binary.LittleEndian.Uint32(file[offPageSize:]))
			if ps <= n && ps >= MinPageSize {
				var id [16]byte
				copy(id[:], file[offStoreID:])
				SetChecksum(file[:ps], Salt(id))
			}
		}
		b := memoryBed()
		writeFile(t, b, file)
		h, err := b.fs.Open(b.path, 0)
		require.NoError(t, err)
		metas, err := readMetas(h, "a.ebb")
		require.Equal(t, err == nil, metas[0] != nil || metas[1] != nil)
		for slot, m := range metas {
			if m == nil {
				continue
			}
			page := file[slot*m.PageSize:][:m.PageSize]
			require.Equal(t, page, appendMeta(nil, m))
		}
		if p, err := b.tryOpen(); err == nil {
			require.NoError(t, p.Close())
		}
	})
}

// TestInvalidMetaPageIsNotWritten, not even by mistake: it would be in the place of a
// good one.
func TestInvalidMetaPageIsNotWritten(t *testing.T) {
	for name, spoil := range map[string]func(m *Meta){
		"epoch":     func(m *Meta) { m.Epoch = MaxEpoch },
		"log start": func(m *Meta) { m.LogStart = maxSegments * uint64(m.SegmentSize) },
		"next tree": func(m *Meta) { m.NextTree = maxNumber },
		"root":      func(m *Meta) { m.Root, m.RootDepth = Ref{Pgid: Pgid(m.Pages), Epoch: 1}, 1 },
	} {
		t.Run(name, func(t *testing.T) {
			p := memoryBed().newPager(t, MinPageSize)
			before := make([]byte, 2*MinPageSize)
			require.NoError(t, vfs.ReadFull(p.file, before, 0))
			m := p.LastMeta()
			m.Epoch++
			spoil(&m)
			require.ErrorContains(t, p.WriteMeta(m), "would be invalid")
			after := make([]byte, 2*MinPageSize)
			require.NoError(t, vfs.ReadFull(p.file, after, 0))
			require.Equal(t, before, after)
		})
	}
}
