package kv

import (
	"context"
	"time"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/ttl"
)

// Stats are numbers of one instant. While a write transaction is open, FileBytes, DiskBytes,
// LogBytes, FreeBytes, PinnedBytes, Groups, Seq, Epoch, LogBytesWritten and TrashTrees are those of
// the last call without one. Readers counts open read transactions, one-shot reads and calls of Check.
// PinnedBytes is the part of FreeBytes that a transaction still reads; the rest is reused from the
// next checkpoint on at the latest. Checkpoints includes those that end a recovery, a BulkLoad and
// the session; Commits includes those of evictions and purges.
type Stats struct {
	PageSize    int   `json:"page_size"`
	FileBytes   int64 `json:"file_bytes"`   // main file
	DiskBytes   int64 `json:"disk_bytes"`   // its room on the disk: less than FileBytes if it has holes
	LogBytes    int64 `json:"log_bytes"`    // of this session, or found by a ReadOnly open
	FreeBytes   int64 `json:"free_bytes"`   // in the main file, not part of the newest state
	PinnedBytes int64 `json:"pinned_bytes"` // of FreeBytes, still read by a transaction
	FrameBytes  int64 `json:"frame_bytes"`  // memory of page frames
	CacheBytes  int64 `json:"cache_bytes"`  // its bound: Options.CacheBytes, or the default
	MemoryBytes int64 `json:"memory_bytes"` // memory limit of the process; 0: unknown

	Readers         int           `json:"readers"`              // open
	OldestReaderAge time.Duration `json:"oldest_reader_age_ns"` // 0 without readers

	Commits     uint64 `json:"commits"`     // since Open
	Groups      uint64 `json:"groups"`      // writes of the log that they shared, never more than Commits
	Checkpoints uint64 `json:"checkpoints"` // since Open
	Seq         uint64 `json:"seq"`         // number of the newest commit
	DurableSeq  uint64 `json:"durable_seq"` // of the newest one known to survive a power cut
	Epoch       uint64 `json:"epoch"`       // number of the newest checkpoint

	PagesRead       uint64 `json:"pages_read"`        // from the main file, since Open
	PagesWritten    uint64 `json:"pages_written"`     // to the main file, since Open
	LogBytesWritten uint64 `json:"log_bytes_written"` // since Open, with padding to blocks and segments
	TrashTrees      int    `json:"trash_trees"`       // dropped trees whose pages are not all freed

	ClockSteps  uint64                 `json:"clock_steps"`  // steps back by more than MaxClockStep
	ClockJumped bool                   `json:"clock_jumped"` // purges return ErrClockJump until Force
	Families    map[string]FamilyStats `json:"families"`

	// Partitions of each time-partitioned family, in the order of time.
	Partitions map[string][]PartitionStats `json:"partitions,omitempty"`
}

// FamilyStats are the numbers of one family. Counts of deleted keys begin at Open.
type FamilyStats struct {
	Rows    int64 `json:"rows"`     // stored
	TTLRows int64 `json:"ttl_rows"` // of them, with an expiry
	Due     int64 `json:"due"`      // of them, expired by now

	Purged         int64  `json:"purged"`          // keys deleted by purges
	Evicted        int64  `json:"evicted"`         // keys deleted because readers found them expired
	PurgeBatches   uint64 `json:"purge_batches"`   // transactions of purges
	BytesReclaimed int64  `json:"bytes_reclaimed"` // keys and values of all these

	// Partitions dropped from a time-partitioned family. Their rows count as purged, with an estimate
	// of their bytes. All rows of such a family are TTLRows.
	PartitionsDropped uint64 `json:"partitions_dropped,omitempty"`
}

// PartitionStats are the numbers of one partition, whose rows have timestamps in [From, To).
type PartitionStats struct {
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
	Rows  int64     `json:"rows"`  // stored
	Bytes int64     `json:"bytes"` // keys and values, estimated from some rows; 0 once the store is closed
}

// RecoveryInfo is the result of the recovery by Open.
type RecoveryInfo struct {
	Clean           bool   `json:"clean"`            // closed cleanly, or new
	Created         bool   `json:"created"`          // new
	CommitsReplayed int    `json:"commits_replayed"` // behind the checkpoint of MetaEpoch
	BytesReplayed   int64  `json:"bytes_replayed"`   // of the log, for these
	BytesDropped    int64  `json:"bytes_dropped"`    // of a torn tail: commits that were not durable
	MetaEpoch       uint64 `json:"meta_epoch"`       // checkpoint that the replay began from
	Seq             uint64 `json:"seq"`              // number of the newest commit found
}

// Stats returns the present numbers; on a closed store those of its end, Close included. It reads
// the families in a read transaction; if that fails they are missing.
func (db *DB) Stats() Stats {
	db.closeMu.Lock()
	defer db.closeMu.Unlock()
	select {
	case <-db.closed:
		return db.last
	default:
		s := db.numbers()
		s.Families, s.Partitions = db.familyStats(true)
		for _, f := range s.Families {
			if f.Due > 0 { // The caller sees that keys are expired.
				db.clock.observeExpired(db.clock.mark.Load())
			}
		}
		return s
	}
}

// numbers are those that do not belong to a family, of an open store or of one whose lower store is
// closed.
func (db *DB) numbers() Stats {
	b := db.store.Stats()
	return Stats{
		PageSize: b.PageSize, FileBytes: b.FileBytes, DiskBytes: b.DiskBytes,
		LogBytes: b.LogBytes, FreeBytes: b.FreeBytes,
		PinnedBytes: b.PinnedBytes, FrameBytes: b.FrameBytes,
		CacheBytes: b.CacheBytes, MemoryBytes: b.MemoryBytes,
		Readers: b.Readers, OldestReaderAge: b.OldestReaderAge,
		Commits: b.Commits, Groups: b.Groups, Checkpoints: b.Checkpoints,
		Seq: b.Seq, DurableSeq: b.DurableSeq, Epoch: b.Epoch,
		PagesRead: b.PagesRead, PagesWritten: b.PagesWritten, LogBytesWritten: b.LogBytesTotal,
		TrashTrees: b.TrashTrees, ClockSteps: db.clock.steps.Load(), ClockJumped: db.clock.jumped.Load(),
	}
}

// familyStats reads the numbers of the families. Unreadable ones are missing. sample says whether to
// estimate bytes from rows, which costs a page or two for each partition.
func (db *DB) familyStats(
	sample bool,
) (families map[string]FamilyStats, partitions map[string][]PartitionStats) {
	families = map[string]FamilyStats{}
	tx, err := db.store.Begin(context.Background(), false)
	if err != nil {
		return families, nil
	}
	defer tx.Rollback()
	if db.placeholder != nil {
		families[db.placeholder.Name] = FamilyStats{}
	}
	now := db.clock.read()
	_ = db.guarded(func() error {
		return cf.Each(tx, func(f *cf.Family) bool {
			s := db.purged.of(f.Base)
			if f.Partitioned() {
				rows := ttl.TimeRows{Tx: tx, Family: f}
				s.Rows, _ = rows.Count()
				s.TTLRows = s.Rows
				s.Due, _ = rows.CountDue(now)
				if partitions == nil {
					partitions = make(map[string][]PartitionStats)
				}
				partitions[f.Name] = partitionStats(rows, sample)
			} else {
				rows := ttl.Rows{Tx: tx, Family: f}
				s.Rows, s.TTLRows = int64(tx.Rows(f.Data())), rows.Count()
				s.Due, _ = rows.Due(now)
			}
			families[f.Name] = s
			return true
		})
	})
	return families, partitions
}

// partitionStats reads the numbers of the partitions of a family. Unreadable ones are missing.
func partitionStats(rows ttl.TimeRows, sample bool) (stats []PartitionStats) {
	list, _ := cf.AllPartitions(rows.Tx, rows.Family)
	for _, p := range list {
		var bytes int64
		if sample {
			var err error
			if bytes, err = rows.EstimateBytes(p); err != nil {
				continue
			}
		}
		stats = append(stats, PartitionStats{
			From: time.UnixMilli(p.Start), To: time.UnixMilli(p.Last).Add(time.Millisecond),
			Rows: int64(rows.Tx.Rows(p.Tree)), Bytes: bytes,
		})
	}
	return stats
}

// RecoveryInfo returns the result of the recovery by Open.
func (db *DB) RecoveryInfo() RecoveryInfo { return db.recovery }
