package kv

import (
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"time"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/ttl"
	"github.com/ebbkv/ebb/txn"
)

// MaxValueSize is the largest value in bytes.
const MaxValueSize = 1<<30 - 1

// Limits of Options.PageSize in bytes.
const (
	minPageSize = 4096
	maxPageSize = 65536
)

// ownerMode is the least FileMode: the store opens its files more than once.
const ownerMode fs.FileMode = 0o600

// defaultMaxClockStep bounds the steps back that the store does not follow. Corrections by NTP are
// smaller.
const defaultMaxClockStep = time.Minute

// Durability is the event that a commit waits for before it returns.
type Durability uint8

const (
	// Sync waits until the commit survives a power cut.
	Sync Durability = iota
	// NoSync waits until the commit survives the end of this process. A power cut may lose the
	// newest such commits, never one in the middle; a later Sync commit, DB.Sync or Close makes
	// them durable.
	NoSync
)

// Options of a store. Zero fields mean defaults. Open returns ErrInvalidOptions, with the name of
// the field, for an invalid value.
type Options struct {
	// ReadOnly opens with a shared lock and writes no byte: the log of a store that was not closed
	// cleanly is replayed in memory. Bounds, durability and callbacks have no effect.
	ReadOnly    bool
	MustExist   bool          // Open returns an error that is fs.ErrNotExist instead of creating a store
	LockTimeout time.Duration // of Open, for another holder of the store, before ErrLocked; 0: none
	Durability  Durability    // the default of each commit: Sync or NoSync
	// PageSize of a new store in bytes: a power of two from 4096 (the default) to 65536. For an
	// existing store: 0 or its own page size.
	PageSize int
	// CacheBytes bounds the memory of page frames, with exceptions for a while: docs/tuning.md; 0: 384
	// MiB, or a quarter of the memory limit of the process (cgroup, GOMEMLIMIT, machine) if less.
	CacheBytes int64
	// FileMode of created files, before the umask; 0: 0600. It has permission bits only, the owner's
	// for reading and writing among them. Existing files keep theirs. Windows has no such bits.
	FileMode fs.FileMode
	// MaxBytes bounds main file and log together, but for a thirty-second; 0: no bound. A write waits
	// for a checkpoint that makes space for it. It returns ErrNoSpace if it does not fit beside the
	// stored rows and the pages of snapshots: from about two thirds of MaxBytes on. Deletes still
	// work. See docs/tuning.md.
	MaxBytes int64
	// CheckpointBytes of log start a checkpoint, or a quarter as much of pages that rows in ascending
	// order have filled. 0: chosen from the store's size, see docs/tuning.md.
	CheckpointBytes int64
	// Clock is read once per transaction, to whole milliseconds. Any call may call it, also with the
	// writer lock held; it must not call the store. nil: the system's clock.
	Clock func() time.Time
	// MaxClockStep is the largest step back of the clock that the store waits out, with its time
	// standing still; a larger step is followed. 0: one minute.
	MaxClockStep time.Duration
	MaxTxnBytes  int64 // bounds the log bytes of one transaction (ErrTxnTooLarge); 0: 4 GiB
	// OnExpire is called for every expired key before a purge or an eviction deletes it, in the
	// transaction that deletes it. An error rolls that batch back; later it is called again for the
	// same keys. Any call that reads or writes may call it. It must not call the store, and may use
	// the slices only until it returns.
	OnExpire func(cf string, key, value []byte) error
	// OnExpireTx is OnExpire with the transaction, through which it may read and write: a place to
	// delete rows that depend on the expired one. It is called after the row was deleted, once: by
	// purges, evictions, and writes of one key that find an expired row in its place, before they do
	// anything else. Calls on a range or a family do not call it: purge in the same transaction first.
	//
	// An error, or a panic, undoes the batch or the write, which returns it. It must use the store
	// through tx only, and may not commit or roll back tx, change families, or purge
	// (ErrInvalidOptions). docs/ttl.md has the details.
	OnExpireTx func(tx *Tx, cf string, key, value []byte) error
	// OnDrop is called for each due partition of a time-partitioned family before it is dropped, in
	// the transaction that drops it: a place for rollups. Its rows have timestamps in [from, to).
	// tx may read and write, and until OnDrop returns it shows the rows of the partition, which are
	// expired. An error undoes all drops of that call; the next call repeats OnDrop.
	// It must not drop partitions itself (ErrInvalidOptions). Clear and DropCF do not call it.
	OnDrop    func(tx *Tx, cf string, from, to time.Time) error
	AutoPurge *AutoPurge   // purges in the background; nil: no goroutine. It contradicts ReadOnly
	Logger    *slog.Logger // gets failures, clock steps, recoveries, and, at level Debug, checkpoints
	Events    *Events      // callbacks for events of the store
}

// Events are called after the event, in the goroutine that did the work, which waits for them. No
// lock is held, except the writer lock while a failed batch is revoked, or while a checkpoint finds
// no space for a log segment. They must not call the store that they came from. nil functions are
// skipped.
type Events struct {
	// CommitGroup reports commits that shared one write of the log, its size in bytes, and, if
	// durable, one sync; took ends when they return. The log of a large transaction takes several
	// writes: commits is 0 for those before the last, which Stats.Groups does not count.
	CommitGroup func(commits int, bytes int64, took time.Duration)
	// Checkpoint reports pages written to the main file, or the error. The checkpoint of Close is
	// reported once, if it writes pages; those that end a recovery or a BulkLoad are not.
	Checkpoint func(pages int, took time.Duration, err error)
	// Purge reports a purge of one family that deleted keys or failed, with its result. Purges
	// inside a transaction and evictions are not reported.
	Purge func(cf string, r PurgeResult, took time.Duration, err error)
	// ClockStep reports a step back of the clock that the store follows: see Options.MaxClockStep.
	ClockStep func(back time.Duration)
	// Failure reports the first failed write, after which every write returns ErrFailed.
	Failure func(err error)
}

// AutoPurge is a purge of all families by a goroutine of the store, with the options that it shares
// with PurgeOptions. It ends with Close. A forward jump of the clock (ErrClockJump) suspends it.
type AutoPurge struct {
	Interval time.Duration // between the end of a purge and the next one; 0: one minute
	Limit    int           // keys of one purge; 0: all that are due
	Batch    int           // keys of one transaction; 0: 256
}

// CFOptions are the settings of a family, rounded up to milliseconds. A negative ttl is ErrInvalidTTL.
// The zero value is a plain family.
type CFOptions struct {
	// DefaultTTL is the ttl of keys that Put writes; 0: none.
	DefaultTTL time.Duration
	// Retention makes the family time-partitioned: rows of Append live this long from their
	// timestamp on; 0: a family of keys. With DefaultTTL it is ErrInvalidOptions.
	Retention time.Duration
	// Partition is the time that one tree of a time-partitioned family covers: expired rows keep
	// their space for up to this long. 0: a thirtieth of Retention. Without that, or negative, it is
	// ErrInvalidOptions.
	Partition time.Duration
}

// PutOptions are expiry and conditions of a write. Zero fields have no effect. An expired key counts
// as absent. Contradictions are ErrInvalidOptions.
type PutOptions struct {
	TTL       time.Duration // from now to the key's expiry, rounded up to a millisecond
	ExpireAt  time.Time     // the key's expiry, rounded up to a millisecond
	KeepTTL   bool          // a present key keeps its expiry; an absent one is written as Put does
	NoExpiry  bool          // the key becomes permanent, even if the family has a default ttl
	IfAbsent  bool          // write only if the key is absent
	IfPresent bool          // write only if the key is present
}

// PurgeOptions of one purge. The zero value deletes all keys that are due.
type PurgeOptions struct {
	Limit int // at most so many keys; 0: all that are due
	Batch int // keys of one transaction; 0: 256. Inside a transaction it does not count
	// Force deletes although the clock has jumped forward, and accepts the new time from then on.
	Force bool
	// OnExpire is called for every key, as Options.OnExpire is and after it.
	OnExpire func(cf string, key, value []byte) error
	// Progress is called after each commit with the number of keys so far, and may use the store; by
	// a purge inside a transaction once, after its last delete.
	Progress func(done int64)
}

// PurgeResult is the result of a purge.
type PurgeResult struct {
	Purged  int64 `json:"purged"`  // keys deleted
	Batches int   `json:"batches"` // transactions committed; 0 inside a transaction
	More    bool  `json:"more"`    // more keys were due: at the limit, or when it was stopped
}

// ScanOptions are the bounds of a range. Bounds and prefix intersect; an empty one is no bound.
type ScanOptions struct {
	Prefix       []byte // keys that begin with it
	Lower, Upper []byte // [Lower, Upper)
	Reverse      bool   // from the highest key down; not for cursors
	KeysOnly     bool   // values are nil, and are not read
	Limit        int    // at most so many rows; 0: all; not for cursors
}

// check returns ErrInvalidOptions for the first invalid field.
func (o *Options) check() error {
	if o.PageSize != 0 &&
		(o.PageSize < minPageSize || o.PageSize > maxPageSize || o.PageSize&(o.PageSize-1) != 0) {
		return invalid("PageSize %d: not a power of two from %d to %d", o.PageSize, minPageSize, maxPageSize)
	}
	switch m := o.FileMode; {
	case m&^fs.ModePerm != 0:
		return invalid("FileMode %v: has more than permission bits", m)
	case m != 0 && m&ownerMode != ownerMode:
		return invalid("FileMode %04o: its owner cannot read and write", m)
	}
	if o.Durability > NoSync {
		return invalid("Durability %d", o.Durability)
	}
	for _, f := range [...]struct {
		name  string
		value int64
	}{
		{"LockTimeout", int64(o.LockTimeout)}, {"CacheBytes", o.CacheBytes}, {"MaxBytes", o.MaxBytes},
		{"CheckpointBytes", o.CheckpointBytes}, {"MaxClockStep", int64(o.MaxClockStep)},
		{"MaxTxnBytes", o.MaxTxnBytes},
	} {
		if f.value < 0 {
			return invalid("%s %d is negative", f.name, f.value)
		}
	}
	if a := o.AutoPurge; a != nil {
		switch {
		case o.ReadOnly:
			return invalid("AutoPurge with ReadOnly")
		case a.Interval < 0:
			return invalid("AutoPurge.Interval %v is negative", a.Interval)
		case a.Limit < 0:
			return invalid("AutoPurge.Limit %d is negative", a.Limit)
		case a.Batch < 0:
			return invalid("AutoPurge.Batch %d is negative", a.Batch)
		}
	}
	return nil
}

// below sets the options of package txn in below, which has those that users do not choose.
func (o *Options) below(fs vfs.FS, below txn.Options) txn.Options {
	if o.FileMode != 0 {
		fs = vfs.WithMode(fs, o.FileMode)
	}
	below.FS, below.ReadOnly, below.MustExist = fs, o.ReadOnly, o.MustExist
	below.LockTimeout, below.PageSize, below.CacheBytes = o.LockTimeout, o.PageSize, o.CacheBytes
	below.MaxBytes, below.CheckpointBytes, below.MaxTxnBytes = o.MaxBytes, o.CheckpointBytes, o.MaxTxnBytes
	below.Events = o.events()
	return below
}

// events combines the logger's events with the caller's.
func (o *Options) events() txn.Events {
	var ev Events
	if o.Events != nil {
		ev = *o.Events
	}
	below := txn.Events{Group: ev.CommitGroup, Checkpoint: ev.Checkpoint, Failure: ev.Failure}
	if log := o.Logger; log != nil {
		below.Checkpoint = func(pages int, took time.Duration, err error) {
			if err != nil {
				log.Error("checkpoint failed", "error", err)
			} else {
				log.Debug("checkpoint", "pages", pages, "took", took)
			}
			if ev.Checkpoint != nil {
				ev.Checkpoint(pages, took, err)
			}
		}
		below.Failure = func(err error) {
			log.Error("write failed; the store takes no more writes until it is opened again", "error", err)
			if ev.Failure != nil {
				ev.Failure(err)
			}
		}
	}
	return below
}

// defaultPartitions is the number of partitions of one retention by default: each more makes a scan
// and a commit a little dearer, each less lets expired rows keep more space.
const defaultPartitions = 30

// check returns the settings as the catalog stores them.
func (o CFOptions) check() (cf.Options, error) {
	switch {
	case o.DefaultTTL < 0:
		return cf.Options{}, fmt.Errorf("%w: DefaultTTL %v is negative", ErrInvalidTTL, o.DefaultTTL)
	case o.Retention < 0:
		return cf.Options{}, fmt.Errorf("%w: Retention %v is negative", ErrInvalidTTL, o.Retention)
	case o.Partition < 0:
		return cf.Options{}, invalid("CFOptions: Partition %v is negative", o.Partition)
	case o.Partition > 0 && o.Retention == 0:
		return cf.Options{}, invalid("CFOptions: Partition without Retention")
	case o.DefaultTTL > 0 && o.Retention > 0:
		return cf.Options{}, invalid("CFOptions: DefaultTTL with Retention")
	}
	width := ttl.Milliseconds(o.Partition)
	if width == 0 {
		width = (ttl.Milliseconds(o.Retention) + defaultPartitions - 1) / defaultPartitions
	}
	return cf.Options{
		DefaultTTLMs: ttl.Milliseconds(o.DefaultTTL),
		RetentionMs:  ttl.Milliseconds(o.Retention),
		PartitionMs:  width,
	}, nil
}

// optionsOf is the inverse of check. A stored duration above the longest Duration becomes that.
func optionsOf(f *cf.Family) CFOptions {
	duration := func(ms int64) time.Duration {
		if ms > math.MaxInt64/int64(time.Millisecond) {
			return math.MaxInt64
		}
		return time.Duration(ms) * time.Millisecond
	}
	return CFOptions{
		DefaultTTL: duration(f.Options.DefaultTTLMs),
		Retention:  duration(f.Options.RetentionMs),
		Partition:  duration(f.Options.PartitionMs),
	}
}

func (o *PutOptions) check() error {
	if o.TTL < 0 {
		return fmt.Errorf("%w: TTL %v is negative", ErrInvalidTTL, o.TTL)
	}
	at := !o.ExpireAt.IsZero()
	for _, c := range [...]struct {
		both bool
		text string
	}{
		{o.IfAbsent && o.IfPresent, "IfAbsent with IfPresent"},
		{o.IfAbsent && o.KeepTTL, "IfAbsent with KeepTTL"},
		{o.TTL > 0 && at, "TTL with ExpireAt"},
		{o.TTL > 0 && o.KeepTTL, "TTL with KeepTTL"},
		{o.TTL > 0 && o.NoExpiry, "TTL with NoExpiry"},
		{at && o.KeepTTL, "ExpireAt with KeepTTL"},
		{at && o.NoExpiry, "ExpireAt with NoExpiry"},
		{o.KeepTTL && o.NoExpiry, "KeepTTL with NoExpiry"},
	} {
		if c.both {
			return invalid("PutOptions: %s", c.text)
		}
	}
	return nil
}

// check returns ErrInvalidOptions for values out of range.
func (o *PurgeOptions) check() error {
	switch {
	case o.Limit < 0:
		return invalid("PurgeOptions.Limit %d is negative", o.Limit)
	case o.Batch < 0:
		return invalid("PurgeOptions.Batch %d is negative", o.Batch)
	}
	return nil
}
