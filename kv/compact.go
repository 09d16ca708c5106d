package kv

import (
	"context"
	"time"

	"github.com/ebbkv/ebb/txn"
)

// CompactOptions are the options of DB.Compact. The zero value is a good default.
type CompactOptions struct {
	// Progress is called after each step, with bytes of pages: moved so far, or read to fill, and all
	// of these as far as is known. It may use the store, and cancel the context. It may be nil.
	Progress func(done, total int64)
	// StepBytes is about how much moves in one step, or is read to fill: the step holds the writer lock.
	// 0: 64 pages.
	StepBytes int64
	// Fill first joins neighbouring pages whose rows fit into fewer, as those do that are less than nine
	// tenths full. It reads all pages but those of large values, and writes what it joins. Rows that
	// come between the others split full pages again: Fill is for stores that stay as they are.
	Fill bool
	// Result is filled in when Compact returns, also with an error. It may be nil.
	Result *CompactResult
}

// CompactResult describes what DB.Compact has done.
type CompactResult struct {
	BytesBefore int64 `json:"bytes_before"` // of the main file
	BytesAfter  int64 `json:"bytes_after"`
	MovedBytes  int64 `json:"moved_bytes"` // of pages
	SavedBytes  int64 `json:"saved_bytes"` // of pages that Fill has joined with others
	// PinnedBytes are those of free pages behind the compacted part of the file that snapshots and
	// backups read: a call after their end cuts them off.
	PinnedBytes int64 `json:"pinned_bytes"`
	// LimitedBy says what keeps the file longer than its pages and a tenth: "snapshots" (or backups),
	// "large values" (no run of free pages before them is long enough), "writes" (commits beside use
	// the free space); "" if nothing does.
	LimitedBy string `json:"limited_by,omitempty"`
}

// Compact makes the main file shorter, while transactions go on: pages at its end move to free space
// before them, in steps between which writers run, checkpoints make the moves durable, and the free
// end of the file is cut off and given back to the file system. The rows do not change. The file
// becomes about as long as its pages and a sixteenth, with the pages that commits use beside Compact;
// if they overwrite the whole store all the time, that is no shorter than before. Pages that
// deletes have left half empty stay so without CompactOptions.Fill; Tx.WriteTo makes a copy with full
// ones. A second call writes next to nothing. See docs/tuning.md for when it is worth it.
//
// Compact waits for the open write transaction until ctx ends; a goroutine that has that transaction
// open itself deadlocks without such a context. It waits for no snapshot: see CompactResult. If ctx
// ends it stops between two steps, and what was moved stays moved. Calls wait for each other. Until it
// returns, Close returns ErrTxnsOpen. nil means context.Background.
//
// Errors: ErrReadOnlyDB, ErrNoSpace if a checkpoint, a log or Fill needs space that is not there,
// ErrCorrupt, that of the context.
func (db *DB) Compact(ctx context.Context, o CompactOptions) error {
	if err := db.state(true); err != nil {
		return err
	}
	if o.StepBytes < 0 {
		return invalid("StepBytes is %d", o.StepBytes)
	}
	size := int64(db.store.PageSize())
	below := txn.CompactOptions{
		StepPages: int((o.StepBytes + size - 1) / size), Fill: o.Fill,
		GiveWay: func(ctx context.Context, held time.Duration) { throttle(ctx, held, db.store.Commits) },
	}
	if o.Progress != nil {
		below.Progress = func(done, total uint64) { o.Progress(int64(done)*size, int64(total)*size) }
	}
	defer db.notifyShutdown()
	r, err := db.store.Compact(ctx, below)
	if o.Result != nil {
		*o.Result = CompactResult{
			BytesBefore: r.Before, BytesAfter: r.After, MovedBytes: int64(r.Moved) * size,
			SavedBytes: int64(r.Saved) * size, PinnedBytes: int64(r.Pinned) * size,
			LimitedBy: string(r.LimitedBy),
		}
	}
	return fromBelow(err)
}
