package wal

import (
	"encoding/binary"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"
)

// TestSegmentsOfAnotherStoreAreNeverObsolete: they were strangers, which Open removes. That their version is another one or
// that their number is not that of their name makes them no less another store's.
func TestSegmentsOfAnotherStoreAreNeverObsolete(t *testing.T) {
	for name, change := range map[string]func(b []byte){
		"as_it_is":          func([]byte) {},
		"of_a_next_version": func(b []byte) { b[segOffVer]++ },
		"renamed":           func(b []byte) { b[segOffNum]++ },
		"of_another_size":   func(b []byte) { b[segOffSize+2]++ },
	} {
		t.Run(name, func(t *testing.T) {
			l, file := smallLog(t, 512)
			change(file)
			binary.LittleEndian.PutUint64(file[segOffSum:], xxhash.Sum64(file[:segOffSum]))
			d := newDisk(t, 512)
			o := testOptions(d)
			o.StoreID[0] ^= 1
			for _, number := range []uint64{1, maxForeign + 1} {
				writeFile(t, d, o.name(number), file)
			}
			found, err := Scan(o)
			require.NoError(t, err)
			require.Empty(t, found.Segments())
			require.Empty(t, found.Foreign())
			require.Empty(t, found.Obsolete(First(o.SegmentSize, 100)))
			require.Equal(t, []OtherSegment{
				{File: o.name(1), StoreID: l.opts.StoreID}, {File: o.name(maxForeign + 1), StoreID: l.opts.StoreID},
			}, found.OfOtherStores())
			require.EqualValues(t, 2, found.NextNumber())
		})
	}
}
