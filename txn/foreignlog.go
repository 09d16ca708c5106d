package txn

import (
	"fmt"
	"path/filepath"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

// A main file and a log that do not belong together are of two stores, or of one store at two
// times: the result of a manual copy, or of a backup that replaced only some files. The log may
// have the only copy of acknowledged commits, so Open neither replays nor removes it, and says how
// to proceed.

// otherStoreLog refuses a log of another store beside the main file at path.
func otherStoreLog(path string, m *pager.Meta, found *wal.ScanResult) error {
	others := found.OfOtherStores()
	if len(others) == 0 {
		return nil
	}
	f, base := others[0], filepath.Base(path)
	return badfile.At(f.File, -1, "the log is of store %x, the main file %s of store %x; "+
		"nothing was changed. Put back the main file that the log belongs to, or, if its commits "+
		"are not wanted, move all files %s-wal-* away", f.StoreID, base, m.StoreID, base)
}

// otherTime returns an error if the log that the newest meta page needs is absent, with the likely
// cause and the remedy; nil if the log looks damaged.
func otherTime(path string, newest *pager.Meta, found *wal.ScanResult) error {
	segments := found.Segments()
	if !found.Absent(wal.LSN(newest.LogStart)) {
		return nil
	}
	base, first := filepath.Base(path), newest.LogStart/uint64(newest.SegmentSize)
	switch {
	case len(segments) == 0:
		return fmt.Errorf("the store was not closed when %s was written, and its log is gone. "+
			"Put back the files %s-wal-* that were beside it, or a backup of the store", base, base)
	case segments[0].Number > first:
		return fmt.Errorf("this looks like an older copy of %s beside a newer log, which begins "+
			"with segment %d. For the state of the copy, move all files %s-wal-* away, and put back "+
			"those that were copied with it, if any; for the state of the log, put back the %s that "+
			"it belongs to", base, segments[0].Number, base, base)
	case segments[len(segments)-1].Number < first:
		return fmt.Errorf("this looks like an older log, which ends with segment %d, beside a newer "+
			"%s. Put back the files %s-wal-* that belong to it, or the older %s",
			segments[len(segments)-1].Number, base, base, base)
	}
	return nil
}
