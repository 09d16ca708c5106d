package kv

import (
	"context"
	"time"

	"github.com/ebbkv/ebb/txn"
)

// CompactOptions are the options of DB.Compact. The zero value is a good default.
type CompactOptions struct {
	// Progress is called after each step, with bytes of pages: moved so far, or read to fill, and all
	// of these as far as is known. It may use the store, and cancel the context.
	Progress  func(done, total int64)
	StepBytes int64 // moved, or read to fill, by one step, which holds the writer lock; 0: 64 pages
	// Fill first joins neighbouring pages whose rows fit into fewer. It reads all pages but those of
	// large values. Later rows split full pages again: Fill is for stores that stay as they are.
	Fill   bool
	Result *CompactResult // filled in when Compact returns, also with an error; may be nil
}

// CompactResult describes what DB.Compact has done.
type CompactResult struct {
	BytesBefore int64 `json:"bytes_before"` // of the main file
	BytesAfter  int64 `json:"bytes_after"`
	MovedBytes  int64 `json:"moved_bytes"` // of pages
	SavedBytes  int64 `json:"saved_bytes"` // of pages that Fill has joined with others
	// PinnedBytes are those of free pages at the end of the file that snapshots and backups read.
	PinnedBytes int64 `json:"pinned_bytes"`
	// LimitedBy says what keeps the file longer than its pages and a tenth: "snapshots" (or backups),
	// "large values" (no run of free pages before them is long enough), "writes" (commits beside use
	// the free space); "" if nothing does.
	LimitedBy string `json:"limited_by,omitempty"`
}

// Compact makes the main file shorter, while transactions go on: pages at its end move to free space
// before them, in steps between which writers run, checkpoints make the moves durable, and the free
// end of the file is cut off. The file becomes about as long as its pages and a sixteenth, with the
// pages that commits use beside Compact. docs/tuning.md says when it is worth it; Tx.WriteTo makes a
// copy with full pages. A second call writes next to nothing.
//
// Compact waits for the writer lock until ctx ends, and for no snapshot: see CompactResult. If ctx ends
// it stops between two steps, and what was moved stays moved. Calls wait for each other. Until it
// returns, Close returns ErrTxnsOpen. Errors: ErrReadOnlyDB, ErrNoSpace if a checkpoint, a log or Fill
// needs space that is not there, ErrCorrupt, that of the context.
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
