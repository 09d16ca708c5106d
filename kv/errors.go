package kv

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/ttl"
	"github.com/ebbkv/ebb/txn"
)

// Errors of the caller: the call had no effect; the transaction and the store are unchanged.
var (
	// ErrNotFound is returned for a key that is absent. It is also fs.ErrNotExist.
	ErrNotFound      error = notFound{}
	ErrKeyEmpty            = errors.New("kv: key is empty")             // by calls on one key
	ErrKeyTooLarge         = errors.New("kv: key is too large")         // by calls on one key: DB.MaxKeySize
	ErrValueTooLarge       = errors.New("kv: value is too large")       // above MaxValueSize
	ErrTxnTooLarge         = errors.New("kv: transaction is too large") // Options.MaxTxnBytes; of a write
	// ErrKeyOrder is returned by BulkLoad.
	ErrKeyOrder = errors.New("kv: keys are not in strictly increasing order")
	// ErrInvalidOptions is returned for an invalid or contradictory option, count or callback.
	ErrInvalidOptions = errors.New("kv: invalid options")
	// ErrInvalidPath is returned for a path that is empty, has a NUL byte, or is no regular file.
	ErrInvalidPath = errors.New("kv: invalid path")
	ErrCFExists    = errors.New("kv: family exists")       // with the name for a new or renamed one
	ErrCFNotFound  = errors.New("kv: no such family")      // by all calls on an absent family
	ErrCFNotEmpty  = errors.New("kv: family is not empty") // by BulkLoad
	// ErrCFName is returned for a name that is empty, above 200 bytes, not UTF-8, or has a NUL byte.
	ErrCFName = errors.New("kv: family name not allowed")
	// ErrCFReserved is returned for names with two underscores in front, and for "default" if the
	// call would drop or rename it.
	ErrCFReserved = errors.New("kv: family is reserved")
	// ErrCFDropped is returned by a *CF whose family was dropped in its transaction.
	ErrCFDropped = errors.New("kv: family was dropped")
	// ErrPartitioned is returned by calls on keys, where CF.Append, GetAt and ScanTime belong.
	ErrPartitioned = errors.New("kv: family is time-partitioned")
	// ErrNotPartitioned is returned by Append, GetAt, ScanTime and DropExpired on any other family.
	ErrNotPartitioned = errors.New("kv: family is not time-partitioned")
	ErrReadOnlyTxn    = errors.New("kv: write in a read transaction")
	ErrReadOnlyDB     = errors.New("kv: store is open read-only") // by every write: Options.ReadOnly
	// ErrTxnDone is returned by an ended transaction, and by its families, ranges and cursors.
	ErrTxnDone = errors.New("kv: transaction has ended")
	// ErrManagedTxn is returned by Commit and Rollback inside View, Update and UpdateContext.
	ErrManagedTxn = errors.New("kv: transaction is ended by View or Update")
	// ErrNotCounter is returned by Increment for values of other than 8 bytes, and for an overflow.
	ErrNotCounter = errors.New("kv: not a counter, or it would overflow")
	// ErrInvalidTTL is returned for a ttl that is not positive, and an expiry in the past or above
	// an int64. The key keeps its value and its expiry.
	ErrInvalidTTL = errors.New("kv: invalid ttl")
	// ErrSavepoint is returned for a savepoint of another transaction, or that an earlier one ended.
	ErrSavepoint = errors.New("kv: savepoint has ended")
)

// Errors of the moment: the same call may succeed later.
var (
	// ErrTxnsOpen is returned by Close while transactions are open. The store stays usable.
	ErrTxnsOpen = errors.New("kv: transactions are open")
	ErrClosed   = errors.New("kv: store is closed")                              // by any call after Close
	ErrLocked   = errors.New("kv: store is locked by another process or handle") // by Open
	// ErrClockJump is returned by purges after the clock jumped forward by more than
	// Options.MaxClockStep, until PurgeOptions.Force or a reopen. Reads hide keys by the clock.
	ErrClockJump = errors.New("kv: clock has jumped forward")
	// ErrNoSpace is returned when the disk, the quota, Options.MaxBytes or a limit of the format is
	// exhausted: the text says which. Pages that wait for a checkpoint count as free. It can also
	// be the cause of ErrCommitUnknown and ErrFailed: test for those first.
	ErrNoSpace = errors.New("kv: no space")
)

// Errors of the file.
var (
	// ErrNotDatabase is returned by Open for a file that is not a store, such as a backup (see Restore).
	// The file is unchanged.
	ErrNotDatabase = errors.New("kv: not an Ebb store")
	// ErrVersion is returned for an unknown version or feature of the format. The file is unchanged.
	ErrVersion = errors.New("kv: unknown format version or feature")
	// ErrCorrupt is returned when bytes read from a file differ from those written, and by Open when
	// a log of another store lies beside the main file. errors.As finds a *CorruptError.
	ErrCorrupt = badfile.ErrCorrupt
)

// Errors of backups.
var (
	// ErrBackupBase is returned by Backup if the store does not remember BackupOptions.Since, and by
	// Restore and VerifyBackup for a gap. Make a full backup, or find the missing one.
	ErrBackupBase = errors.New("kv: not the backup that an increment builds on")
)

// Errors of the machine: no later write of this handle can succeed. Open the store again.
var (
	// ErrFailed is returned by writes after a failed one, and wraps its cause. Reads still work.
	ErrFailed = errors.New("kv: an earlier write failed; open the store again")
	// ErrCommitUnknown is returned by a commit whose outcome only the next Open decides. It wraps
	// the cause, which can be another of these errors, or ErrClosed: test for it first.
	ErrCommitUnknown = errors.New("kv: fate of the commit is unknown; open the store again")
	// ErrFileReplaced is returned when the file at the store's path is not the one that was opened.
	ErrFileReplaced = errors.New("kv: file was replaced or removed while open")
)

// CorruptError locates damage: file, page, byte offset, and the found and expected values.
type CorruptError = badfile.Error

type notFound struct{}

func (notFound) Error() string        { return "kv: not found" }
func (notFound) Is(target error) bool { return target == fs.ErrNotExist }

// failure is an error of kv with the error of a lower package as its cause. errors.Is finds both.
type failure struct{ kind, cause error }

// Error is the kind and the cause in one sentence: see plainText.
func (f *failure) Error() string { return plainText(f.kind.Error()+": "+f.cause.Error(), nil) }

func (f *failure) Unwrap() []error { return []error{f.kind, f.cause} }

// kinds maps errors of lower packages to those of this package. An error may wrap its cause, and
// then matches several: its text begins with the first match here. more says that the text of the
// lower error says more than the name here.
var kinds = [...]struct {
	from, to error
	more     bool
}{
	{txn.ErrUnknown, ErrCommitUnknown, false},
	{txn.ErrReplaced, ErrFileReplaced, false},
	{txn.ErrFailed, ErrFailed, false},
	{txn.ErrTxnDone, ErrTxnDone, false},
	{txn.ErrReadOnly, ErrReadOnlyTxn, false},
	{txn.ErrReadOnlyDB, ErrReadOnlyDB, false},
	{txn.ErrClosed, ErrClosed, false},
	{txn.ErrTxnsOpen, ErrTxnsOpen, false},
	{txn.ErrTxnTooBig, ErrTxnTooLarge, false},
	{txn.ErrNoSpace, ErrNoSpace, false},
	{txn.ErrSavepoint, ErrSavepoint, false},
	{txn.ErrNotDB, ErrNotDatabase, false},
	{txn.ErrBackupBase, ErrBackupBase, false},
	{txn.ErrVersion, ErrVersion, false},
	{txn.ErrPageSize, ErrInvalidOptions, true},
	{txn.ErrOrder, ErrKeyOrder, false},
	{cf.ErrExists, ErrCFExists, false},
	{cf.ErrNotFound, ErrCFNotFound, false},
	{cf.ErrName, ErrCFName, false},
	{cf.ErrReserved, ErrCFReserved, false},
	{cf.ErrOptions, ErrInvalidOptions, true},
	{cf.ErrVersion, ErrVersion, true},
	{cf.ErrSequenceEnd, ErrNotCounter, true},
	{ttl.ErrInvalid, ErrInvalidTTL, false},
	{vfs.ErrLocked, ErrLocked, false},
	{vfs.ErrNoSpace, ErrNoSpace, false},
	{vfs.ErrInvalidPath, ErrInvalidPath, true},
	{vfs.ErrNotRegular, ErrInvalidPath, true},
}

// fromBelow maps an error of a lower package to this package. Errors of the machine, of a context
// and of callbacks pass unchanged.
func fromBelow(err error) error {
	if err == nil {
		return nil
	}
	named := err
	for i := len(kinds) - 1; i >= 0; i-- {
		if k := kinds[i]; errors.Is(err, k.from) && !errors.Is(named, k.to) {
			named = &failure{k.to, named}
		}
	}
	if text := err.Error(); named == err && plainText(text, nil) != text {
		return &worded{err}
	}
	return named
}

// invalid is an ErrInvalidOptions that names the field.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalidOptions, fmt.Sprintf(format, args...))
}
