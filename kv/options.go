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

// ownerMode is what a store needs of its files: it opens them more than once.
const ownerMode fs.FileMode = 0o600

// defaultMaxClockStep is what a clock may be set back without being taken for wrong. NTP corrects
// by less.
const defaultMaxClockStep = time.Minute

// Durability says what a commit waits for before it returns.
type Durability uint8

const (
	// Sync waits until the commit survives a power cut.
	Sync Durability = iota
	// NoSync waits until the commit survives the end of this process. A power cut may lose the
	// newest such commits, never one in the middle; a later Sync commit, DB.Sync or Close makes
	// them durable.
	NoSync
)

// Options of a store. Every zero field is a good default. What cannot be taken is
// ErrInvalidOptions, naming the field.
type Options struct {
	// ReadOnly opens with a shared lock. A store that was not closed cleanly is replayed in memory;
	// no byte is written. AutoPurge contradicts it. Bounds, durability and callbacks are accepted,
	// and have nothing to do.
	ReadOnly bool
	// MustExist makes Open fail with an error that is fs.ErrNotExist instead of creating a store.
	MustExist bool
	// LockTimeout is how long Open waits for another holder of the store; 0: it fails at once with
	// ErrLocked.
	LockTimeout time.Duration
	// Durability is the default of each commit: Sync or NoSync.
	Durability Durability
	// PageSize of a new store in bytes: a power of two from 4096 (the default) to 65536. For an
	// existing store: 0 or its own.
	PageSize int
	// CacheBytes bounds the memory of page frames, in bytes; 0: 384 MiB, or a quarter of the memory
	// that the process may use (cgroup, GOMEMLIMIT, machine) if that is less: Stats tells. What an
	// open transaction and a checkpoint under way need may be above it for a while: docs/tuning.md.
	CacheBytes int64
	// FileMode of files that are created, log segments and temporary files included, less the bits
	// of the umask; 0: 0600. It has permission bits only, those of the owner to read and write
	// among them. Files that are there keep what they have. Windows has no such bits.
	FileMode fs.FileMode
	// MaxBytes bounds main file and log together; 0: no bound. A write waits for a checkpoint that
	// makes space for it, and is ErrNoSpace if it does not fit beside what is stored and what
	// snapshots hold: from about three quarters of MaxBytes on, since the log has the rest, see
	// docs/tuning.md. Deletes still work at the bound.
	MaxBytes int64
	// CheckpointBytes of log start a checkpoint; so does a quarter as much that is to be written,
	// if rows that came in order have filled most of it. 0: chosen from the store's size, see
	// docs/tuning.md.
	CheckpointBytes int64
	// Clock is read once per transaction, to whole milliseconds. It may be called from any call,
	// also while that keeps writers waiting, and must not call the store. nil: the system's clock.
	Clock func() time.Time
	// MaxClockStep is how far the clock may be set back and time still stands still until it has
	// caught up; a larger step is followed. 0: one minute.
	MaxClockStep time.Duration
	// MaxTxnBytes bounds the log bytes of one transaction, ErrTxnTooLarge above; 0: 4 GiB.
	MaxTxnBytes int64
	// OnExpire hears of every expired key before it is deleted, by a purge or because a reader met
	// it, in the transaction that deletes it: an error rolls that batch back, and then it is asked
	// again. It may be called from any call that reads or writes, must not call the store, and may
	// use the slices only until it returns.
	OnExpire func(cf string, key, value []byte) error
	// AutoPurge purges in the background. nil: nothing runs by itself. With ReadOnly it is
	// ErrInvalidOptions.
	AutoPurge *AutoPurge
	// Logger hears of failures, clock steps, what an open had to recover, and, at level Debug, of
	// checkpoints. nil: silent.
	Logger *slog.Logger
	// Events are told of what happened. nil: nobody is.
	Events *Events
}

// Events are called after the fact, from the goroutine that did the work, which waits for them;
// without a lock held, but for the writer's where a batch that failed is taken back, or where a
// checkpoint finds no room for a segment of the log. They must not call the store that they came
// from. nil functions are skipped.
type Events struct {
	// CommitGroup tells of commits that shared one write of the log, of so many bytes, and, if
	// durable, one sync. The log of a large transaction takes several writes: commits is 0 for
	// those before the last, which Stats.Groups does not count. took lasts until the calls that
	// waited for the write are told; where a batch is carried out while its record is written,
	// until both are done.
	CommitGroup func(commits int, bytes int64, took time.Duration)
	// Checkpoint tells of pages written to the main file, or of why it failed; of what Close writes
	// once, if it writes any. Those that end a recovery or a BulkLoad have no event.
	Checkpoint func(pages int, took time.Duration, err error)
	// Purge tells of a purge of one family that deleted something or failed, with what it did.
	// Purges inside a transaction and evictions have no event.
	Purge func(cf string, r PurgeResult, took time.Duration, err error)
	// ClockStep tells that the clock was set back by more than Options.MaxClockStep, and that the
	// store followed it.
	ClockStep func(back time.Duration)
	// Failure tells of the first failed write, after which every write is ErrFailed.
	Failure func(err error)
}

// AutoPurge is a purge of all families by a goroutine of the store, with the options that its
// fields share with PurgeOptions. It ends with Close. A clock that jumped forward (ErrClockJump)
// suspends it.
type AutoPurge struct {
	Interval time.Duration // between the end of a purge and the next one; 0: one minute
	Limit    int           // keys of one purge; 0: all that are due
	Batch    int           // keys of one transaction; 0: 256
}

// CFOptions are the settings of a family. The zero value is a plain family.
type CFOptions struct {
	// DefaultTTL is what Put gives a key, rounded up to a millisecond; 0: nothing. A negative one
	// is ErrInvalidTTL.
	DefaultTTL time.Duration
}

// PutOptions are expiry and conditions of a write. Zero fields ask for nothing; an expired key is
// absent. Contradictions are ErrInvalidOptions.
type PutOptions struct {
	// TTL is how long the key lives from now on, rounded up to a millisecond.
	TTL time.Duration
	// ExpireAt is the instant at which the key is gone, rounded up to a millisecond.
	ExpireAt time.Time
	// KeepTTL leaves the expiry of a key that is there as it is. An absent key is written as Put
	// does.
	KeepTTL bool
	// NoExpiry makes the key permanent, even if the family has a default ttl.
	NoExpiry bool
	// IfAbsent writes only if the key is absent.
	IfAbsent bool
	// IfPresent writes only if the key is there.
	IfPresent bool
}

// PurgeOptions of one purge. The zero value deletes all that is due.
type PurgeOptions struct {
	Limit int // at most so many keys; 0: all that are due
	Batch int // keys of one transaction; 0: 256. Inside a transaction it does not count
	// Force deletes although the clock has jumped forward, and takes the new time for right from
	// then on.
	Force bool
	// OnExpire hears of every key, as Options.OnExpire does and after it.
	OnExpire func(cf string, key, value []byte) error
	// Progress is called after each commit with the number of keys so far, and may use the store.
	// Of a purge inside a transaction it is called once, at its end, unless that deleted nothing;
	// it may use that transaction.
	Progress func(done int64)
}

// PurgeResult is what a purge did.
type PurgeResult struct {
	Purged  int64 `json:"purged"`  // keys deleted
	Batches int   `json:"batches"` // transactions committed; 0 inside a transaction
	More    bool  `json:"more"`    // more keys were due: at the limit, or when it was stopped
}

// ScanOptions are the bounds of a range. Bounds and prefix intersect; an empty one does not bound.
type ScanOptions struct {
	Prefix       []byte // keys that begin with it
	Lower, Upper []byte // [Lower, Upper)
	Reverse      bool   // from the highest key down; not for cursors
	KeysOnly     bool   // values are nil, and are not read
	Limit        int    // at most so many rows; 0: all; not for cursors
}

// Tuning is for this repository's own tools and tests: see OpenFS.
type Tuning struct {
	SegmentSize     int64         // bytes of a log segment of a new store
	LeastRoom       int64         // bytes of the file of a log's first segment; 0: the default
	NoMap, NoDirect bool          // do not map the file; do not write past the page cache
	Rand            func() uint64 // nil: crypto/rand
	// a checkpoint that a commit starts is over when the commit returns: runs repeat exactly
	Inline bool
	// groups of the free map have 64 pages, two a page of its directory; the store is opened with
	// it ever after
	SmallGroups bool

	Memory     int64 // that the process may use; 0: what the system tells
	AheadFrom  int   // rows from which on they are logged before they are carried out; 0: the default
	LeavesFrom int   // full leaves from which on the log names them; 0: the default
	// rows from which on several processors take part in a batch, whatever is in the family; 0: the
	// default, in large ones
	ManyFrom int

	// Monotonic makes Options.Clock stand for the system's clock: it is compared with this one.
	Monotonic func() time.Duration
}

// check returns ErrInvalidOptions for the first field that cannot be taken.
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
		{"CheckpointBytes", o.CheckpointBytes}, {"MaxClockStep", int64(o.MaxClockStep)}, {"MaxTxnBytes", o.MaxTxnBytes},
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

// below translates to the options of the room below.
func (o *Options) below(fs vfs.FS, tune Tuning) txn.Options {
	if o.FileMode != 0 {
		fs = vfs.WithMode(fs, o.FileMode)
	}
	return txn.Options{
		FS: fs, ReadOnly: o.ReadOnly, MustExist: o.MustExist, LockTimeout: o.LockTimeout, PageSize: o.PageSize,
		CacheBytes: o.CacheBytes, MaxBytes: o.MaxBytes, CheckpointBytes: o.CheckpointBytes, MaxTxnBytes: o.MaxTxnBytes,
		SegmentSize: tune.SegmentSize, LeastRoom: tune.LeastRoom, NoMap: tune.NoMap, NoDirect: tune.NoDirect, Rand: tune.Rand,
		Inline: tune.Inline, SmallGroups: tune.SmallGroups, SubmitFrom: tune.AheadFrom, LeavesFrom: tune.LeavesFrom, ManyFrom: tune.ManyFrom,
		Memory: tune.Memory, Events: o.events(),
	}
}

// events joins what the logger and the user's functions want to hear.
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

// check returns the settings as the catalog stores them.
func (o CFOptions) check() (cf.Options, error) {
	if o.DefaultTTL < 0 {
		return cf.Options{}, fmt.Errorf("%w: DefaultTTL %v is negative", ErrInvalidTTL, o.DefaultTTL)
	}
	return cf.Options{DefaultTTLMs: ttl.Milliseconds(o.DefaultTTL)}, nil
}

// optionsOf is what check has made of options, as durations. One that the stored form can hold and
// a duration cannot is the longest duration.
func optionsOf(f *cf.Family) CFOptions {
	const longest = math.MaxInt64 / int64(time.Millisecond)
	if f.Options.DefaultTTLMs > longest {
		return CFOptions{DefaultTTL: math.MaxInt64}
	}
	return CFOptions{DefaultTTL: time.Duration(f.Options.DefaultTTLMs) * time.Millisecond}
}

// check refuses contradictions.
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

// check refuses what is out of range.
func (o *PurgeOptions) check() error {
	switch {
	case o.Limit < 0:
		return invalid("PurgeOptions.Limit %d is negative", o.Limit)
	case o.Batch < 0:
		return invalid("PurgeOptions.Batch %d is negative", o.Batch)
	}
	return nil
}
