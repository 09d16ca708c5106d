// Package live looks at a store that another process has open: without a lock, and without its
// help. All that it tells proves by a checksum, and is of one checkpoint.
//
// Looks are independent of each other. The package knows no tree and no row.
package live

import (
	"encoding/hex"
	"errors"
	"reflect"
	"time"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

// State is a store at its last checkpoint, and its log since.
type State struct {
	StoreID    string `json:"store_id"`
	PageSize   int    `json:"page_size"`
	Checkpoint uint32 `json:"checkpoint"` // its number
	Seq        uint64 `json:"seq"`        // of the last commit in the checkpoint
	ClockMark  string `json:"clock_mark"` // latest instant of a commit; "" if there is none
	// Clean says that the checkpoint needs no log: the store is closed, or no change was made since it
	// was opened.
	Clean       bool   `json:"clean"`
	FileBytes   int64  `json:"file_bytes"`
	DiskBytes   int64  `json:"disk_bytes"` // of FileBytes, without holes; 0: unknown
	UsedBytes   int64  `json:"used_bytes"` // of pages in use; -1: the free map is damaged
	FreeBytes   int64  `json:"free_bytes"` // of pages that are free, without those behind the last one
	LogBytes    int64  `json:"log_bytes"`  // known to be durable behind the checkpoint
	LogSegments int    `json:"log_segments"`
	LogFiles    int64  `json:"log_files_bytes"` // size of all segment files
	Holder      string `json:"holder"`          // process that has the store open, where the system tells
}

// mostReads bounds the reads until two are equal. A checkpoint changes a meta page, so even two reads
// in a row are rarely not.
const mostReads = 1000

// Look reads the state of the store at path. Errors are those of a file that is no store or cannot be
// read, and *badfile.Error if no meta page is valid.
func Look(fsys vfs.FS, path string) (s *State, err error) {
	file, err := pager.OpenLive(fsys, path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	var before *State
	for n := range mostReads {
		ok, err := file.ReadAgain()
		if err != nil {
			return nil, err
		}
		now := (*State)(nil)
		if m, _ := file.Meta(); ok && m != nil {
			now = read(file, m, n > mostReads/10)
		}
		switch {
		case now == nil:
			time.Sleep(time.Millisecond)
		case before != nil && reflect.DeepEqual(before, now):
			m, _ := file.Meta()
			now.readLog(fsys, path, m)
			now.Holder = vfs.HolderOf(path)
			now.DiskBytes, _ = vfs.DiskBytes(path)
			return now, nil
		}
		before = now
	}
	if !file.Magic() {
		return nil, pager.ErrNotStore
	}
	return nil, badfile.Page(path, 0, 0, "no valid meta page in %d reads", mostReads)
}

// read takes what a meta page and the free directory tell; nil if the directory is no longer there:
// the next checkpoint has taken its pages. If it never is, it is damaged: unknown accepts that.
func read(file *pager.RawFile, m *pager.Meta, unknown bool) *State {
	size := int64(m.PageSize)
	s := &State{
		StoreID: hex.EncodeToString(m.StoreID[:]), PageSize: m.PageSize,
		Checkpoint: uint32(m.Epoch), Seq: m.Seq,
		Clean: m.Clean, FileBytes: file.Bytes(), UsedBytes: 2 * size,
	}
	if m.ClockMark != 0 {
		s.ClockMark = time.UnixMilli(m.ClockMark).UTC().Format("2006-01-02T15:04:05.000Z07:00")
	}
	if !m.FreeDir.IsZero() {
		used, ok := file.UsedPages(m.FreeDir)
		switch {
		case !ok && unknown:
			s.UsedBytes, s.FreeBytes = -1, -1
			return s
		case !ok:
			return nil
		}
		s.UsedBytes = int64(used) * size
	}
	s.FreeBytes = int64(m.Pages)*size - s.UsedBytes
	return s
}

// readLog adds what the headers of the segments tell. The log goes on meanwhile: a segment may be
// gone before it is read.
func (s *State) readLog(fsys vfs.FS, path string, m *pager.Meta) {
	found, err := wal.Scan(wal.Options{FS: fsys, Path: path, StoreID: m.StoreID, SegmentSize: m.SegmentSize})
	if err != nil {
		return
	}
	s.LogSegments, s.LogFiles = len(found.Segments()), found.FileBytes()
	if synced, start := found.SyncedHint(), wal.LSN(m.LogStart); synced > start && s.LogSegments > 0 {
		s.LogBytes = int64(synced - start)
	}
}
