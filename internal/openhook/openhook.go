// Package openhook lets package internal/openfs open a store with what package kv does not offer:
// another file system, and settings of the engine. kv sets its variables when it is initialized.
package openhook

import (
	"context"
	"io"
	"time"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/txn"
)

// Tuning is what the tools and tests of this repository may choose beside kv.Options.
type Tuning struct {
	// Engine has the settings that kv.Options does not set.
	Engine txn.Options
	// Monotonic makes Options.Clock stand for the system's clock: it is compared with this one.
	Monotonic func() time.Duration
}

// Open opens the store at path of fs. opts is a *kv.Options, the result a *kv.DB.
var Open func(fs vfs.FS, path string, opts any, tune Tuning) (any, error)

// Restore restores a store to path of fs; errors name it as shown.
var Restore func(
	ctx context.Context, fs vfs.FS, path, shown string, engine txn.Options, backups ...io.Reader,
) error

// DueAt counts the stored rows of a family that are expired at an instant in milliseconds, which may
// be one to come. tx is a *kv.Tx.
var DueAt func(tx any, family string, atMs int64) (rows int64, err error)

// Pack packs the files of a *kv.DB now, as an idle store does.
var Pack func(db any) error

// OpenError maps an error of the lower packages from opening the store at path as kv.Open does.
var OpenError func(path string, err error) error
