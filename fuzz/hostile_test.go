package fuzz

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/txn"
)

func specimens(t testing.TB) (all []*Specimen) {
	for _, name := range Shapes() {
		s, err := NewSpecimen(name)
		require.NoError(t, err)
		all = append(all, s)
	}
	return all
}

// hostile builds an input.
func hostile(shape, mend byte, edits ...[]byte) []byte {
	in := []byte{shape, mend}
	for _, e := range edits {
		in = append(in, e...)
	}
	return in
}

// edit builds an edit of a file: the length lowest bytes of value are put at a place of a page.
func edit(kind, file, page byte, at uint16, length byte, value uint64) []byte {
	e := binary.LittleEndian.AppendUint16([]byte{kind, file, page}, at)
	return binary.LittleEndian.AppendUint64(append(e, length), value)
}

// randomHostile aims: at headers, at the start of payloads, at numbers that are near a bound.
func randomHostile(rnd *rand.Rand, shapes int) []byte {
	in := []byte{byte(rnd.IntN(shapes)), byte(rnd.IntN(8))}
	if rnd.IntN(4) > 0 {
		in[1] = 7
	}
	for range 1 + rnd.IntN(4) {
		kind := byte(editSet)
		if rnd.IntN(5) == 0 {
			kind = byte(rnd.IntN(hostileKinds))
		}
		file := byte(0)
		if rnd.IntN(2) == 0 {
			file = byte(rnd.IntN(8))
		}
		at := uint16(rnd.IntN(64))
		switch rnd.IntN(4) {
		case 0:
			at = uint16(rnd.IntN(specimenPage))
		case 1:
			at = uint16(rnd.IntN(600))
		}
		numbers := []uint64{
			0,
			1,
			2,
			3,
			7,
			24,
			255,
			256,
			4095,
			4096,
			65535,
			1<<31 - 1,
			1 << 31,
			1<<32 - 1,
			1<<63 - 1,
			1 << 63,
			1<<64 - 1,
			uint64(rnd.IntN(40)),
			rnd.Uint64(),
		}
		in = append(
			in,
			edit(kind, file, byte(rnd.IntN(40)), at, byte(1+rnd.IntN(8)), numbers[rnd.IntN(len(numbers))])...)
	}
	return in
}

// randomForgery changes fields, whose checksums are made good.
func randomForgery(rnd *rand.Rand, shapes int) []byte {
	in := []byte{byte(rnd.IntN(shapes)), mendPages | mendRecords | mendSegments}
	for range 1 + rnd.IntN(3) {
		value := []uint64{0, 1, 2, 3, 255, 4096, 1<<16 - 1, 1 << 31, 1<<32 - 1, 1 << 44, 1 << 47,
			1 << 48, 1<<62 - 1, 1 << 63, 1<<64 - 1, rnd.Uint64(), rnd.Uint64()}[rnd.IntN(17)]
		way := byte(rnd.IntN(forgeWays))
		if way != forgeSet {
			value = rnd.Uint64()
		}
		in = append(in, edit(editForge, 0, byte(rnd.Uint32()), uint16(rnd.Uint32()), way, value)...)
	}
	return in
}

// TestForgedStoresEndInErrors changes what the format has a name for, one to three fields at a
// time: references come to be of pages that others name, too, or of the page above, counts and
// positions to be near to what they were.
func TestForgedStoresEndInErrors(t *testing.T) {
	racetest.OneGoroutine(t)
	requireErrors(t, 5, randomForgery)
}

// TestForgedStoresOfTheSystem are read through a map, in which a page is proved once.
func TestForgedStoresOfTheSystem(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	all := specimens(t)
	t.Chdir(t.TempDir())
	n := uint64(100)
	if testing.Short() {
		n = 20
	}
	for seed := range n {
		in := randomForgery(rand.New(rand.NewPCG(seed, 6)), len(all))
		require.NoError(t, os.RemoveAll(filepath.Dir(path)))
		require.NoError(t, os.Mkdir(filepath.Dir(path), 0o755))
		files := hostileFiles(all, in)
		require.NoError(t, putSpecimen(vfs.OS, files))
		require.NoError(
			t,
			hostileLooksAt(vfs.OS, files, txn.Options{ManyFrom: 2, SubmitFrom: 2}),
			"seed %d, input %x",
			seed,
			in,
		)
	}
}

// TestFieldsAreOfAllClasses, so that a change of the format does not leave the forger behind.
func TestFieldsAreOfAllClasses(t *testing.T) {
	classes := map[string]int{}
	for _, s := range specimens(t) {
		for _, f := range fields(s.files) {
			classes[f.class]++
		}
	}
	for _, class := range []string{
		"pgid", "epoch", "kind", "level", "count", "size", "bits", "ref", "flags", "pages", "lsn",
		"depth", "rows", "tree", "seq", "time", "place", "head",
		"klen", "vinfo", "salt", "byte",
	} {
		require.Greater(t, classes[class], 3, class)
		delete(classes, class)
	}
	require.Empty(t, classes)
}

// TestHostileStoresEndInErrors opens stores that an attacker has changed, checksums included.
func TestHostileStoresEndInErrors(t *testing.T) {
	racetest.OneGoroutine(t)
	requireErrors(t, 4, randomHostile)
}

// requireErrors looks at stores that inputs of this kind make.
func requireErrors(t *testing.T, stream uint64, input func(rnd *rand.Rand, shapes int) []byte) {
	t.Helper()
	all := specimens(t)
	n := uint64(700)
	if testing.Short() {
		n = 60
	}
	for seed := range n {
		in := input(rand.New(rand.NewPCG(seed, stream)), len(all))
		require.NoError(t, hostileLooks(hostileFiles(all, in)), "seed %d, input %x", seed, in)
	}
}

// TestMendedStoreIsSound proves the mender: what it seals without an edit is the specimen itself,
// so every byte that it computes is the one that the engine wrote.
func TestMendedStoreIsSound(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	for i, s := range specimens(t) {
		files := hostileFiles(specimens(t), hostile(byte(i), mendPages|mendRecords|mendSegments))
		for name, content := range s.files {
			if name == mainFile() {
				continue // Pages that nothing reaches are sealed too.
			}
			require.True(t, bytes.Equal(content, files[name]), name)
		}
		fsys, err := specimenDisk(files)
		require.NoError(t, err)
		db, err := openSpecimen(fsys, 5, false)
		require.NoError(t, err)
		require.True(t, readShelf(db).equal(s.states[len(s.states)-1]))
		require.NoError(t, sound(db))
		require.NoError(t, db.Close())
	}
}

// FuzzHostileStore opens whole files, changed at will, with checksums as they are or computed anew.
// hostileLooks holds the bounds of memory and time.
func FuzzHostileStore(f *testing.F) {
	racetest.OneGoroutine(f)
	all := specimens(f)
	for shape := range byte(len(all)) {
		f.Add(hostile(shape, 0))
		f.Add(hostile(shape, 7, edit(editSet, 0, 0, 80, 8, 1<<40))) // page count
		// root of the tree table
		f.Add(hostile(shape, 7, edit(editSet, 0, 0, 104, 8, 3)))
		f.Add(hostile(shape, 7, edit(editSet, 0, 1, 116, 4, 60)))    // its depth
		f.Add(hostile(shape, 7, edit(editSet, 0, 1, 88, 8, 1<<50)))  // log start
		f.Add(hostile(shape, 7, edit(editSet, 0, 3, 22, 2, 0xffff))) // cells of a page
		// size of an extent, or a leaf's heads
		f.Add(hostile(shape, 7, edit(editSet, 0, 4, 24, 8, 1<<29)))
		f.Add(hostile(shape, 7, edit(editCopy, 0, 5, 0, 255, 6)))   // a page twice
		f.Add(hostile(shape, 7, edit(editSet, 1, 2, 40, 4, 1<<31))) // length of a record
		f.Add(hostile(shape, 7, edit(editSet, 2, 2, 48, 8, 1<<60))) // its commit number
		f.Add(hostile(shape, 6, edit(editFlip, 1, 2, 64, 1, 3)))    // its first operation
		// block size; a short segment
		f.Add(hostile(shape, 7, edit(editSet, 1, 0, 12, 4, 4096), edit(3, 2, 3, 100, 0, 0)))
	}
	// A record of the catalog was changed: the family's tree did not exist, and no error said that
	// the file is damaged.
	f.Add(
		[]byte(
			"\x03\x05\x03\x02\x18\x06\x00\x02\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x18\xd1\x0d\x02\xff\xff\xff\x7f\x00\x00\x00\x00" +
				"\x00\x00\x15\xde\x0f\x08\x00\x00\x00\x00\x00\x00\x00\x80\x03\x05\x0b\x3c\x00\x01\x18\x00\x00\x00\x00\x00\x00\x00",
		),
	)
	f.Fuzz(func(t *testing.T, input []byte) {
		if len(input) > 2+20*hostileEdit {
			return
		}
		if files := hostileFiles(all, input); files != nil {
			require.NoError(t, hostileLooks(files))
		}
	})
}
