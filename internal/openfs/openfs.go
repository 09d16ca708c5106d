// Package openfs opens stores for the tools and tests of this repository.
package openfs

import (
	"context"
	"io"
	"time"

	"github.com/ebbkv/ebb/internal/openhook"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// Tuning is what kv.Options does not offer.
type Tuning = openhook.Tuning

// Open is kv.Open on another file system, nil for that of the system, with other settings of the
// engine.
func Open(fs vfs.FS, path string, opts *kv.Options, engine txn.Options) (*kv.DB, error) {
	return OpenTuned(fs, path, opts, Tuning{Engine: engine})
}

// OpenTuned is Open with all that can be chosen.
func OpenTuned(fs vfs.FS, path string, opts *kv.Options, tune Tuning) (*kv.DB, error) {
	db, err := openhook.Open(fs, path, opts, tune)
	return db.(*kv.DB), err
}

// Restore is kv.Restore on another file system, with other settings of the engine.
func Restore(ctx context.Context, fs vfs.FS, path string, engine txn.Options, backups ...io.Reader) error {
	return openhook.Restore(ctx, fs, path, path, engine, backups...)
}

// Pack packs the files of a store now, as an idle store does.
func Pack(db *kv.DB) error { return openhook.Pack(db) }

// OpenError maps an error of the lower packages from opening the store at path as kv.Open does.
func OpenError(path string, err error) error { return openhook.OpenError(path, err) }

// DueAt counts the stored rows of a family that are expired at an instant, which may be one to come:
// in time independent of their number.
func DueAt(tx *kv.Tx, family string, at time.Time) (rows int64, err error) {
	return openhook.DueAt(tx, family, at.UnixMilli())
}
