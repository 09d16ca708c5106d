package fuzz

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// mostCancelled: a compaction is cancelled after some step below it, or not at all.
const mostCancelled = 20

// compactionSteps is after how many steps a compaction is cancelled, if that is below mostCancelled.
func compactionSteps(rnd *rand.Rand) int { return rnd.IntN(3 * mostCancelled) }

// opCompact compacts in steps of a page, and fills in half of the cases. Between the steps there are
// commits, purges and snapshots, and a third of the compactions is cancelled after some step.
func opCompact(r *Run, rnd *rand.Rand) error {
	beside := []func(*Run, *rand.Rand) error{opPut, opOverwrite, opDelete, opBig, opPurge, opHold,
		opEvict, opRelaxed}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	last := compactionSteps(rnd)
	steps, failed := 0, error(nil)
	r.Disk.SetPhase("compact")
	err := r.db.Compact(ctx, kv.CompactOptions{StepBytes: 1, Fill: last%2 == 0, Progress: func(int64, int64) {
		if failed != nil {
			return
		}
		if rnd.IntN(4) == 0 {
			failed = beside[rnd.IntN(len(beside))](r, rnd)
			r.Disk.SetPhase("compact")
		}
		if steps++; failed != nil || steps == last && last < mostCancelled {
			cancel()
		}
	}})
	if failed != nil {
		return failed
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// opPack packs the store, as if it were idle.
func opPack(r *Run, _ *rand.Rand) error {
	r.Disk.SetPhase("pack")
	if err := openfs.Pack(r.db); err != nil {
		return err
	}
	r.durable(r.newest())
	return nil
}

// mostBackups bounds the backups that a run keeps.
const mostBackups = 5

// backup is a backup with those that it builds on.
type backup struct {
	info  kv.BackupInfo
	chain [][]byte
	point int // length of the trace when it was complete
}

// opBackup makes a full backup, or an increment on a random earlier one. The chain makes a store of
// the state that it says.
func opBackup(r *Run, rnd *rand.Rand) error {
	var base *backup
	if n := len(r.backups); n > 0 && rnd.IntN(4) > 0 {
		base = &r.backups[rnd.IntN(n)]
	}
	r.Disk.SetPhase("backup")
	b, err := makeBackup(r.db, base)
	if err != nil {
		return err
	}
	r.durable(r.newest()) // the checkpoint of the backup
	b.point = r.Disk.Len()
	if b.info.Seq != r.newest() {
		return wrong("the backup is of commit %d, want %d", b.info.Seq, r.newest())
	}
	got, err := r.config.restored(b.chain)
	if err != nil {
		return wrong("restore of %d backups: %v", len(b.chain), err)
	}
	if got.seq != b.info.Seq || got.hash != r.States[got.seq].Stored {
		return wrong("restored commit %d, want %d, with its rows", got.seq, b.info.Seq)
	}
	if r.backups = append(r.backups, b); len(r.backups) > mostBackups {
		r.backups = r.backups[1:]
	}
	return nil
}

// makeBackup makes an increment on base, or without one a full backup.
func makeBackup(db *kv.DB, base *backup) (b backup, err error) {
	var o kv.BackupOptions
	if base != nil {
		o.Since = &base.info
		b.chain = append(b.chain, base.chain...)
	}
	var out bytes.Buffer
	b.info, err = db.Backup(context.Background(), &out, o)
	b.chain = append(b.chain, out.Bytes())
	return b, err
}

// restored is the content of the store of a chain, which is sound.
func (c Config) restored(chain [][]byte) (got contents, err error) {
	var streams []io.Reader
	for _, b := range chain {
		streams = append(streams, bytes.NewReader(b))
	}
	fs := vfs.NewMemory()
	o := txn.Options{SmallGroups: c.Groups}
	if err := openfs.Restore(context.Background(), fs, path, o, streams...); err != nil {
		return got, err
	}
	db, err := c.open(fs, 1)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if got, err = readContents(db); err == nil {
		err = sound(db)
	}
	return got, err
}

// backupShare: of so many images, one is asked for an increment.
const backupShare = 16

// increment asks a recovered image for an increment on the newest backup that was complete before the
// crash: the chain goes on.
func (j *Judge) increment(im *crashfs.Image, salt uint64, v verdict) error {
	var base *backup
	for i := range j.run.backups {
		if b := &j.run.backups[i]; b.point <= im.Point {
			base = b
		}
	}
	if base == nil || mix(im.Hash())%backupShare > 0 {
		return nil
	}
	c := j.run.config
	db, err := c.open(im.Disk(crashfs.Options{Direct: c.Direct, Untraced: true}), salt)
	if err != nil {
		return fmt.Errorf("open for a backup: %w", err)
	}
	next, err := makeBackup(db, base)
	if err = errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("increment after the crash: %w", err)
	}
	got, err := c.restored(next.chain)
	if err != nil {
		return fmt.Errorf("restore of %d backups after the crash: %w", len(next.chain), err)
	}
	if got != v.contents {
		return fmt.Errorf("the chain after the crash restores commit %d, want %d", got.seq, v.seq)
	}
	return nil
}
