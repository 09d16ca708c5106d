package txn

import (
	"errors"
	"time"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
)

// TreeID is the number of a tree: never used twice in one store. Tree 0 is the tree table, which
// belongs to this package; tree 1 is the catalog of package cf; NewTreeIDs returns the others.
type TreeID uint64

// CatalogTree is the tree that every store has from its creation.
const CatalogTree TreeID = 1

// Info describes a row without touching its value: zero for a key that does not exist. A tag is 8
// bytes that are stored with the row and mean nothing to this package.
type Info = tree.Info

// Durability says what Commit waits for.
type Durability uint8

// Sync waits until the commit survives a power cut; NoSync until it survives a killed process.
const (
	Sync Durability = iota
	NoSync
)

// Errors of this package. They reach users under the names of kv.
var (
	ErrTxnDone    = errors.New("txn: transaction has ended")
	ErrReadOnly   = errors.New("txn: write in a read transaction")
	ErrClosed     = pager.ErrClosed
	ErrTxnsOpen   = errors.New("txn: transactions are open")
	ErrTxnTooBig  = errors.New("txn: transaction above the limit")
	ErrNoSpace    = errors.New("txn: no space")
	ErrFailed     = errors.New("txn: an earlier write failed; reopen the store")
	ErrUnknown    = errors.New("txn: fate of the commit is unknown; reopen the store")
	ErrReplaced   = pager.ErrReplaced
	ErrSavepoint  = errors.New("txn: savepoint has ended")
	ErrNotDB      = pager.ErrNotStore
	ErrVersion    = pager.ErrVersion
	ErrPageSize   = errors.New("txn: page size")
	ErrNoTree     = errors.New("txn: no such tree")
	ErrOrder      = tree.ErrOrder // keys of a bulk load that do not ascend
	ErrLocked     = vfs.ErrLocked
	ErrReadOnlyDB = errors.New("txn: store is open read-only")
	ErrBackupBase = errors.New("txn: not the backup that an increment builds on")
)

// Options of a store. Zero fields are defaults.
type Options struct {
	FS              vfs.FS // nil: vfs.OS
	ReadOnly        bool
	MustExist       bool
	LockTimeout     time.Duration
	PageSize        int   // of a new store; of an existing one: 0 or its own
	CacheBytes      int64 // bound on page frames; 0: see withDefaults
	Memory          int64 // available to the process; 0: found by internal/memlimit
	MaxBytes        int64 // bound on main file and log
	CheckpointBytes int64
	MaxTxnBytes     int64
	SegmentSize     int64         // of the log of a new store
	LeastRoom       int64         // bytes of a log's first segment file; 0: the default
	NoMap, NoDirect bool          // no mmap of the file, no direct I/O
	Rand            func() uint64 // nil: crypto/rand
	Inline          bool          // checkpoints run in the commit that starts them: for deterministic tests
	// Choose returns one of n choices that all leave the same rows: whether to read directly, how
	// many workers apply a batch. Nil: the fastest. Tests of crashes cover all of them.
	Choose func(n int) int
	// PackAfter is how long after the last commit the store packs its files: see Pack. 0: never.
	PackAfter   time.Duration
	SmallGroups bool // the free map has small groups: for tests, see pager.Options
	// SubmitFrom is the least number of changes whose record is written ahead: see Tx.CanSubmitLog;
	// 0: the default.
	SubmitFrom int
	LeavesFrom int // least full leaves of a run that the log references: see Tx.Apply; 0: the default
	// ManyFrom is the least number of changes for a parallel apply, ManyRows the least rows of
	// their tree: see Tx.Apply; 0: the defaults.
	ManyFrom int
	ManyRows uint64
	Events   Events
}

// Events are called after the event, without a lock held, from the goroutine that did the work. Nil
// ones are skipped.
type Events struct {
	Group      func(commits int, bytes int64, took time.Duration)
	Checkpoint func(pages int, took time.Duration, err error)
	Failure    func(err error)
}

// Recovery describes what Open found.
type Recovery struct {
	Clean           bool // closed cleanly, or new
	Created         bool
	CommitsReplayed int
	BytesReplayed   int64
	BytesDropped    int64 // of a torn tail
	MetaEpoch       uint64
	Seq             uint64
}

// Stats are plain numbers of one instant.
type Stats struct {
	PageSize                               int
	FileBytes, LogBytes, FreeBytes         int64
	DiskBytes                              int64 // room of the main file on the disk
	PinnedBytes, FrameBytes                int64
	CacheBytes, MemoryBytes                int64 // options, or their defaults
	Readers                                int
	OldestReaderAge                        time.Duration
	Commits, Groups, Checkpoints           uint64
	Seq, DurableSeq, Epoch                 uint64
	PagesRead, PagesWritten, LogBytesTotal uint64
	TrashTrees                             int
}

// Problem is one finding of Check.
type Problem struct {
	Kind   string // page, tree, leak, twice, rows, log, meta, incomplete, closed
	Tree   TreeID
	File   string
	Page   uint64
	Offset int64
	Detail string
}
