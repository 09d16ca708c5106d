package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
)

// claimExtent makes a page of a file the first of an extent that reaches up to the byte at end. Its
// checksum is wrong.
func claimExtent(file []byte, id pager.Pgid, end int) {
	page := file[int(id)*4096:][:4096]
	pager.WriteHeader(page, pager.Header{Pgid: id, Epoch: 1, Kind: pager.KindOverflow})
	binary.LittleEndian.PutUint64(page[offExtentSize:], uint64(end-int(id)*4096-offExtentValue))
}

// storeOfValues makes a store with so many values, each of which takes an extent of eleven pages,
// and returns its path and where they begin.
func storeOfValues(t *testing.T, values int) (s string, extents []pager.Pgid) {
	t.Helper()
	s = storePath(t)
	for i := range values {
		good(t, "put", s, fmt.Sprint(i), string(bytes.Repeat([]byte{'v'}, 11*4096-offExtentValue)))
	}
	for _, line := range objects(t, good(t, "pages", s, "--json")) {
		if line["kind"] == "overflow" && line["use"] == "used" {
			require.Equal(t, 11.0, line["pages"])
			extents = append(extents, pager.Pgid(line["pgid"].(float64)))
		}
	}
	require.Len(t, extents, values)
	return s, extents
}

// countedFile counts what is read.
type countedFile struct {
	vfs.File
	read, most int
}

func (f *countedFile) ReadAt(b []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(b, off)
	f.read, f.most = f.read+n, max(f.most, len(b))
	return n, err
}

// TestPagesReadsNoByteOftenWhateverPagesClaim: pages read as much as a page claimed, for each page,
// into memory of that size. A file of 300 MB whose every page claims the rest of it was eleven
// terabytes of reading.
func TestPagesReadsNoByteOftenWhateverPagesClaim(t *testing.T) {
	s, extents := storeOfValues(t, 20)
	file, err := os.ReadFile(s)
	require.NoError(t, err)
	pages := len(file) / 4096
	file = append(file, make([]byte, 100*4096)...) // free: behind the last page
	var claims []pager.Pgid
	for i := range 11 * len(extents) {
		claims = append(claims, extents[i/11]+pager.Pgid(i%11))
	}
	for i := range 100 - 1 { // The last page can claim no more than itself.
		claims = append(claims, pager.Pgid(pages+i))
	}
	for _, id := range claims {
		claimExtent(file, id, len(file))
	}
	require.NoError(t, os.WriteFile(s, file, 0o666))

	var out bytes.Buffer
	l := pageLister{app: &app{out: newOutput(&out), json: true, progress: progressNone}}
	require.NoError(t, l.open(t.Context(), s))
	counted := &countedFile{File: l.file}
	l.file, l.ext.file = counted, counted
	require.NoError(t, l.list(t.Context()))
	require.NoError(t, l.close())
	// once as a page, once as sound; used and free ones claim
	require.LessOrEqual(t, counted.read, len(file)*(2+2*maxFalse))
	require.LessOrEqual(t, counted.most, 1<<20)

	require.NoError(t, l.app.out.Flush())
	lines, unread := objects(t, out.String()), 0
	require.Len(t, lines, len(file)/4096, "each page is a line")
	for _, id := range claims {
		line := lines[id]
		require.EqualValues(t, id, line["pgid"])
		require.Equal(t, line["use"] == "used", line["bad"], "%v", line)
		if line["checksum"] == "unknown" {
			unread++
			require.Equal(
				t,
				fmt.Sprintf("an extent of %d pages among others that overlap: not read", len(lines)-int(id)),
				line["detail"],
			)
		}
	}
	require.Equal(t, len(claims)-2*maxFalse, unread)
}

// TestAFalseClaimHidesNoSoundExtent has extents claim more than they have, as many as can be borne
// in one place: those behind them are proved.
func TestAFalseClaimHidesNoSoundExtent(t *testing.T) {
	const lies = maxFalse - 1
	s, extents := storeOfValues(t, lies+3)
	file, err := os.ReadFile(s)
	require.NoError(t, err)
	for _, id := range extents[:lies] {
		claimExtent(file, id, int(extents[lies+2])*4096)
	}
	require.NoError(t, os.WriteFile(s, file, 0o666))
	a := ebb(t, "pages", s, "--json")
	require.Equal(t, exitError, a.code)
	ok := map[pager.Pgid]bool{}
	for _, line := range objects(t, a.out) {
		ok[pager.Pgid(line["pgid"].(float64))] = line["checksum"] == "ok" && line["pages"] == 11.0
	}
	for i, id := range extents {
		require.Equal(t, i >= lies, ok[id], "extent %d at page %d", i, id)
	}
}

// TestFreePagesHideNoSoundExtent has more free pages claim what is used than may be read in one
// place.
func TestFreePagesHideNoSoundExtent(t *testing.T) {
	s, extents := storeOfValues(t, 2)
	good(t, "del", s, "0")
	file, err := os.ReadFile(s)
	require.NoError(t, err)
	for i := range pager.Pgid(maxFalse + 1) {
		claimExtent(file, extents[0]+i, len(file))
	}
	require.NoError(t, os.WriteFile(s, file, 0o666))
	lines := objects(t, good(t, "pages", s, "--json"))
	require.Equal(
		t,
		[]any{"free", "unknown"},
		[]any{lines[extents[0]+maxFalse]["use"], lines[extents[0]+maxFalse]["checksum"]},
	)
	require.Contains(t, good(t, "pages", s), fmt.Sprintf("%8d     11 overflow", extents[1]))
}
