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
	ErrNotFound error = notFound{}
	// ErrKeyEmpty is returned by point calls for an empty or nil key.
	ErrKeyEmpty = errors.New("kv: key is empty")
	// ErrKeyTooLarge is returned by point calls for a key above DB.MaxKeySize.
	ErrKeyTooLarge = errors.New("kv: key is too large")
	// ErrValueTooLarge is returned for a value above MaxValueSize.
	ErrValueTooLarge = errors.New("kv: value is too large")
	// ErrTxnTooLarge is returned by the write that takes a transaction above Options.MaxTxnBytes.
	ErrTxnTooLarge = errors.New("kv: transaction is too large")
	// ErrKeyOrder is returned by BulkLoad for keys that do not strictly increase.
	ErrKeyOrder = errors.New("kv: keys are not in strictly increasing order")
	// ErrInvalidOptions is returned for an option that is out of range, unknown or contradicts
	// another, for a negative count, and for a nil callback.
	ErrInvalidOptions = errors.New("kv: invalid options")
	// ErrInvalidPath is returned by Open for a path that is empty, holds a NUL byte, or names
	// something else than a regular file.
	ErrInvalidPath = errors.New("kv: invalid path")
	// ErrCFExists is returned when a family is created or renamed to a name that is taken.
	ErrCFExists = errors.New("kv: family exists")
	// ErrCFNotFound is returned by calls on a family that does not exist.
	ErrCFNotFound = errors.New("kv: no such family")
	// ErrCFNotEmpty is returned by BulkLoad into a family that has rows.
	ErrCFNotEmpty = errors.New("kv: family is not empty")
	// ErrCFName is returned for a family name that is empty, above 200 bytes, not UTF-8, or with a
	// NUL byte.
	ErrCFName = errors.New("kv: family name not allowed")
	// ErrCFReserved is returned for a family name that begins with two underscores, and when
	// "default" is dropped or renamed.
	ErrCFReserved = errors.New("kv: family is reserved")
	// ErrCFDropped is returned by a *CF whose family was dropped in its transaction.
	ErrCFDropped = errors.New("kv: family was dropped")
	// ErrPartitioned is returned by calls on the keys of a time-partitioned family: such rows are
	// written by Append and read by GetAt and ScanTime.
	ErrPartitioned = errors.New("kv: family is time-partitioned")
	// ErrNotPartitioned is returned by Append, ScanTime and their kin on any other family.
	ErrNotPartitioned = errors.New("kv: family is not time-partitioned")
	// ErrReadOnlyTxn is returned by a write in a read transaction.
	ErrReadOnlyTxn = errors.New("kv: write in a read transaction")
	// ErrReadOnlyDB is returned by every write on a store that was opened with Options.ReadOnly.
	ErrReadOnlyDB = errors.New("kv: store is open read-only")
	// ErrTxnDone is returned by a transaction, its families, iterators and cursors after it has
	// ended.
	ErrTxnDone = errors.New("kv: transaction has ended")
	// ErrManagedTxn is returned by Commit and Rollback inside View, Update and UpdateContext.
	ErrManagedTxn = errors.New("kv: transaction is ended by View or Update")
	// ErrNotCounter is returned by Increment if the value is not 8 bytes long or the sum overflows,
	// and by NextSequence after the largest uint64.
	ErrNotCounter = errors.New("kv: not a counter, or it would overflow")
	// ErrInvalidTTL is returned for a ttl that is not positive or whose expiry overflows, and for
	// an expiry that is not after now. The key keeps its value and its expiry.
	ErrInvalidTTL = errors.New("kv: invalid ttl")
	// ErrSavepoint is returned for a savepoint of another transaction, and for one that an earlier
	// one ended.
	ErrSavepoint = errors.New("kv: savepoint has ended")
)

// Errors of the moment: the same call may succeed later.
var (
	// ErrTxnsOpen is returned by Close while transactions are open. The store stays usable.
	ErrTxnsOpen = errors.New("kv: transactions are open")
	// ErrClosed is returned by any call on a store after Close.
	ErrClosed = errors.New("kv: store is closed")
	// ErrLocked is returned by Open if another process or handle has the store open.
	ErrLocked = errors.New("kv: store is locked by another process or handle")
	// ErrClockJump is returned by purges after the system's clock jumped forward by more than
	// Options.MaxClockStep while the store was open, until PurgeOptions.Force or a reopen. Reads
	// hide keys that are expired by the clock.
	ErrClockJump = errors.New("kv: clock has jumped forward")
	// ErrNoSpace is returned when the disk, the quota, Options.MaxBytes or a limit of the format is
	// exhausted. Freed pages that only wait for a checkpoint count as free. The text names the limit
	// and the missing bytes. It can also be the cause of ErrCommitUnknown and ErrFailed: test for
	// those first.
	ErrNoSpace = errors.New("kv: no space")
)

// Errors of the file.
var (
	// ErrNotDatabase is returned by Open for a file that is not a store. The file is unchanged.
	ErrNotDatabase = errors.New("kv: not an Ebb store")
	// ErrVersion is returned for a store of another version of the format, or with a feature that
	// this program does not know. The file is unchanged.
	ErrVersion = errors.New("kv: unknown format version or feature")
	// ErrCorrupt is returned when bytes read from a file differ from those written, and by Open when
	// a log of another store lies beside the main file. errors.As finds a *CorruptError.
	ErrCorrupt = badfile.ErrCorrupt
)

// Errors of backups.
var (
	// ErrBackupBase is returned by Backup if the store does not remember the backup that the increment
	// is to build on, and by Restore and VerifyBackup if a backup does not build on the one before
	// it. Make a full backup, or find the missing one.
	ErrBackupBase = errors.New("kv: not the backup that an increment builds on")
)

// Errors of the machine: no later write of this handle can succeed. Open the store again.
var (
	// ErrFailed is returned by writes after an earlier one failed; it wraps the first cause. Reads
	// still work.
	ErrFailed = errors.New("kv: an earlier write failed; open the store again")
	// ErrCommitUnknown is returned by a commit whose outcome only the next Open decides; it wraps
	// the cause. The cause can be another error of this list, or ErrClosed: test for
	// ErrCommitUnknown first.
	ErrCommitUnknown = errors.New("kv: fate of the commit is unknown; open the store again")
	// ErrFileReplaced is returned when the file at the store's path is not the one that was opened.
	ErrFileReplaced = errors.New("kv: file was replaced or removed while open")
)

// CorruptError locates damage: file, page, byte offset, and the found and expected values.
type CorruptError = badfile.Error

// notFound is the type of ErrNotFound.
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
	if named == err {
		return inPlainWords(err)
	}
	return named
}

// invalid is an ErrInvalidOptions that names the field.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalidOptions, fmt.Sprintf(format, args...))
}
