package kvtest

import (
	"testing"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// Disk is a simulated disk, in memory. Stores on it find after Kill or PowerCut what a real crash
// would have left. It records each write until the next crash: a test should write megabytes, not
// gigabytes.
type Disk struct {
	t       testing.TB
	disk    *crashfs.Disk
	crashes int
}

// NewDisk returns an empty disk.
func NewDisk(t testing.TB) *Disk { return &Disk{t: t, disk: crashfs.New(crashfs.Options{})} }

// Open opens the store of that name, and creates it if it is absent, as kv.Open does.
func (d *Disk) Open(name string, o *kv.Options) *kv.DB {
	d.t.Helper()
	db, err := openfs.Open(d.disk, name, o, txn.Options{})
	if err != nil {
		d.t.Fatalf("kvtest: %v", err)
	}
	crashes := d.crashes
	d.t.Cleanup(func() {
		if crashes == d.crashes {
			finish(d.t, db)
			return
		}
		_ = db.Close() // The process that had it open is dead.
	})
	return db
}

// Kill is the death of the process: the disk keeps all that was written. Stores that were open must
// not be used any more; Open opens them again.
func (d *Disk) Kill() { d.restart(crashfs.Kill, 0) }

// PowerCut is the death of the machine: each block that was written and not synced is kept or lost,
// as seed decides; all seeds together try many combinations. Stores that were open must not be used
// any more; Open opens them again.
func (d *Disk) PowerCut(seed uint64) { d.restart(crashfs.Reorder, seed) }

// restart replaces the disk by what a crash now leaves of it.
func (d *Disk) restart(profile crashfs.Profile, seed uint64) {
	now := d.disk.Len()
	for _, p := range []crashfs.Profile{profile, crashfs.None} { // Reorder has no image where all is synced
		o := crashfs.ImageOptions{Profiles: p, From: now, To: now + 1, Random: 1, Seed: seed}
		for image := range d.disk.Images(o) {
			d.disk = image.Disk(crashfs.Options{})
			d.crashes++
			return
		}
	}
	d.t.Fatalf("kvtest: no image of the disk")
}
