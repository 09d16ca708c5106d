package kv

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/ebbkv/ebb/internal/openhook"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/txn"
)

// BackupOptions are the options of DB.Backup. The zero value makes a full backup.
type BackupOptions struct {
	Since    *BackupInfo             // earlier backup that an increment builds on; nil: a full backup
	Progress func(done, total int64) // called after each part, with bytes of pages; may be nil
}

// BackupInfo describes a backup. Since needs StoreID and ID only.
type BackupInfo struct {
	StoreID    string    `json:"store_id"`       // of the store, 32 hexadecimal digits
	ID         string    `json:"id"`             // epoch of its checkpoint, and a random number
	Base       string    `json:"base,omitempty"` // the backup that an increment builds on; ""
	Seq        uint64    `json:"seq"`            // number of the last commit in it: see Tx.Seq
	MadeAt     time.Time `json:"made_at"`        // by the store's clock
	PageBytes  int64     `json:"page_bytes"`     // of the pages in the stream
	StoreBytes int64     `json:"store_bytes"`    // of the main file
	Bytes      int64     `json:"bytes"`          // of the stream; 0 from ReadBackupInfo
}

// Backup writes a backup of the newest committed state to w: the pages of a checkpoint, in order,
// while transactions and later checkpoints go on. Restore makes a store of a full backup and the
// increments since. Backup verifies each page that it reads. A backup is only good if Backup has
// returned nil: w may have a part of it after an error, which Restore and VerifyBackup refuse.
//
// Backup waits for other backups' checkpoints and for the writer lock until ctx ends. Until it returns
// the store keeps the pages of the checkpoint, as a long read transaction does (Stats.PinnedBytes), and
// Close returns ErrTxnsOpen. It needs 1 MiB of memory, and 1 bit for each page. Errors:
// ErrBackupBase if Since is none of the last 32 backups of this store, or of a copy of it;
// ErrReadOnlyDB, since the store has to remember the backup: see Tx.WriteTo; ErrCorrupt; errors of w.
func (db *DB) Backup(ctx context.Context, w io.Writer, o BackupOptions) (BackupInfo, error) {
	if err := db.state(true); err != nil {
		return BackupInfo{}, err
	}
	if w == nil {
		return BackupInfo{}, invalid("the writer is nil")
	}
	below := txn.BackupOptions{MadeAt: db.clock.now()}
	if o.Since != nil {
		since, err := o.Since.below()
		if err != nil {
			return BackupInfo{}, err
		}
		below.Since = since
	}
	if size := int64(db.store.PageSize()); o.Progress != nil {
		below.Progress = func(done, total uint64) { o.Progress(int64(done)*size, int64(total)*size) }
	}
	defer db.notifyShutdown()
	b, err := db.store.Backup(background(ctx), w, below)
	return backupInfo(b), fromBelow(err)
}

// Restore makes a store at path of a full backup and its increments, in order. The store is complete
// and verified before it appears at path: after an error or a crash there is none. It has the id,
// the clock mark and the expiries of the one that was backed up, and its increments go on from the
// last one restored. Errors:
// fs.ErrExist if there is a file at path, or a log of one beside it; ErrBackupBase if the
// backups are not of one store, or one does not build on the one before it; ErrCorrupt for a backup
// that was changed or cut; ErrLocked while another process creates a store at path; ErrNoSpace;
// errors of the readers.
func Restore(ctx context.Context, path string, backups ...io.Reader) error {
	at := path
	if path != "" {
		if abs, err := filepath.Abs(path); err == nil {
			at = vfs.Follow(abs)
		}
	}
	return restore(ctx, vfs.OS, at, path, txn.Options{}, backups...)
}

func init() { openhook.Restore = restore }

// restore restores to path; errors name it as shown.
func restore(
	ctx context.Context, fs vfs.FS, path, shown string, engine txn.Options, backups ...io.Reader,
) error {
	if err := checkPath(path); err != nil {
		return err
	}
	engine.FS = fs
	if err := txn.Restore(ctx, path, engine, backups...); err != nil {
		return fmt.Errorf("restore %s: %w", shown, fromBelow(err))
	}
	return nil
}

// VerifyBackup reads a full backup and its increments as Restore does, and writes nothing. It
// returns the description of the last, with the bytes of all. Restore verifies more: that the pages
// make one store. Errors are those of Restore.
func VerifyBackup(ctx context.Context, backups ...io.Reader) (BackupInfo, error) {
	b, err := txn.VerifyBackup(ctx, backups...)
	return backupInfo(b), fromBelow(err)
}

// ReadBackupInfo reads the description at the beginning of a backup. It does not verify the rest.
func ReadBackupInfo(r io.Reader) (BackupInfo, error) {
	b, err := txn.ReadBackup(r)
	return backupInfo(b), fromBelow(err)
}

func backupInfo(b *txn.Backup) BackupInfo {
	if b == nil {
		return BackupInfo{}
	}
	info := BackupInfo{
		StoreID: hex.EncodeToString(b.StoreID[:]), ID: b.ID.String(), Seq: b.Seq, MadeAt: b.MadeAt,
		Bytes:     b.Bytes,
		PageBytes: int64(b.Pages) * int64(b.PageSize), StoreBytes: int64(b.StorePages) * int64(b.PageSize),
	}
	if b.Base.ID != 0 {
		info.Base = b.Base.String()
	}
	return info
}

// below is the part of the description that an increment needs.
func (i *BackupInfo) below() (*txn.Backup, error) {
	b := new(txn.Backup)
	id, err := hex.DecodeString(i.StoreID)
	known := false
	if b.ID, known = txn.ParseBackupID(i.ID); err != nil || len(id) != 16 || !known {
		return nil, invalid("Since has store id %q and id %q", i.StoreID, i.ID)
	}
	b.StoreID = [16]byte(id)
	return b, nil
}

// WriteTo writes the state that a read transaction sees to w, as the main file of a new store: with
// an id of its own, all rows and expiries, full pages, and no log. It is the way to copy a store
// compacted, also one that is open read-only; a Backup is faster and has increments. WriteTo does not
// seek in w, but reads the rows twice. The file is complete only if the error is nil; sync it before
// you rely on it. Errors: ErrInvalidOptions in a write transaction, ErrTxnDone, ErrCorrupt, those of w.
func (tx *Tx) WriteTo(w io.Writer) (n int64, err error) {
	defer tx.leave(tx.enter(), &err)
	if err := tx.alive(false); err != nil {
		return 0, err
	}
	switch {
	case w == nil:
		return 0, invalid("the writer is nil")
	case tx.Writable():
		return 0, invalid("WriteTo copies the state of a read transaction")
	}
	n, err = tx.inner.CopyTo(context.Background(), w)
	return n, fromBelow(err)
}
