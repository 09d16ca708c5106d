package fuzz

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ebbkv/ebb/internal/bound"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// hostileEdit is the number of bytes that one edit takes of an input.
//
//	0      1      2      3           5        6             14
//	+------+------+------+-----------+--------+-------------+
//	| kind | file | page | at in page| length | value       |
//	| u8   | u8   | u8   | u16       | u8     | 8 bytes     |
//	+------+------+------+-----------+--------+-------------+
const hostileEdit = 14

// Kinds of edits, modulo hostileKinds.
const (
	editSet    = iota // the first length bytes of value, at most 8
	editFlip          // the same, by exclusive or
	editCopy          // 8*length bytes from page value[0], offset value[1:3], of the same file
	editResize        // the file ends at the place
	editForge         // page and place are the number of a field, length is the way: see forge
	hostileKinds
)

// hostileFiles makes files from an input: a specimen, which checksums are made good again, and
// edits.
func hostileFiles(specimens []*Specimen, input []byte) map[string][]byte {
	if len(input) < 2 {
		return nil
	}
	s, mend := specimens[int(input[0])%len(specimens)], input[1]
	files := map[string][]byte{}
	for name, content := range s.files {
		files[name] = bytes.Clone(content)
	}
	names := slices.Sorted(maps.Keys(files))
	for in := input[2:]; len(in) >= hostileEdit; in = in[hostileEdit:] {
		if in[0]%hostileKinds == editForge {
			forge(files, in[:hostileEdit])
			continue
		}
		name := names[int(in[1])%len(names)]
		files[name] = edited(files[name], in[:hostileEdit])
	}
	mendFiles(files, mend)
	return files
}

func edited(b, e []byte) []byte {
	at := int(e[2])*specimenPage + int(binary.LittleEndian.Uint16(e[3:]))%specimenPage
	if e[0]%hostileKinds == editResize {
		if at <= len(b) {
			return b[:at]
		}
		return append(b, make([]byte, at-len(b))...)
	}
	if len(b) == 0 {
		return b
	}
	at %= len(b)
	value := e[6:]
	switch n := int(e[5]); e[0] % hostileKinds {
	case editSet:
		copy(b[at:], value[:min(n, 8)])
	case editFlip:
		for i := range min(n, 8, len(b)-at) {
			b[at+i] ^= value[i]
		}
	case editCopy:
		from := (int(value[0])*specimenPage +
			int(binary.LittleEndian.Uint16(value[1:]))%specimenPage) % len(b)
		copy(b[at:], bytes.Clone(b[from:min(from+8*n, len(b))]))
	}
	return b
}

// hostileLooks opens hostile files and does everything to the store. Nothing may panic, hang, or
// use memory that the files are no reason for; and every error is one that tells of the file, or of
// what its damage led to.
func hostileLooks(files map[string][]byte) error {
	fsys, err := specimenDisk(files)
	if err != nil {
		return err
	}
	return hostileLooksAt(fsys, files, txn.Options{NoMap: true, ManyFrom: 2, SubmitFrom: 2, LeavesFrom: 1})
}

func hostileLooksAt(fsys vfs.FS, files map[string][]byte, tune txn.Options) error {
	size := 0
	for _, content := range files {
		size += len(content)
	}
	defer bound.Watch(hangLimit(size))()
	before := bound.Allocated()
	frames := int64(0)
	err := guard(func() error {
		for try, readOnly := range []bool{true, false, false} {
			db, err := openAsSpecimen(fsys, uint64(200+try), readOnly, tune)
			if err != nil {
				if err := hostileError(err); err != nil {
					return fmt.Errorf("open: %w", err)
				}
				continue
			}
			err = hostileUse(db, readOnly)
			frames = max(frames, db.Stats().FrameBytes)
			if err := errors.Join(err, hostileError(db.Close())); err != nil {
				return err
			}
		}
		return nil
	})
	if used, most := bound.Allocated()-before+uint64(frames), uint64(64<<20+4*size)*3; err == nil &&
		used > most {
		return fmt.Errorf(
			"%d bytes of memory, at most %d may be used in three looks at %d bytes of files",
			used,
			most,
			size,
		)
	}
	return err
}

// hangLimit only tells a hang from work.
func hangLimit(size int) time.Duration {
	return bound.Patience + time.Duration(size>>20)*time.Second
}

// hostileError lets the errors pass that a hostile file may be answered with.
func hostileError(err error) error {
	for _, may := range []error{
		nil, kv.ErrCorrupt, kv.ErrNotDatabase, kv.ErrVersion, kv.ErrFailed, kv.ErrNotFound, kv.ErrCFNotFound,
		// Two options of the file that the caller's contradict, and numbers that a store could run
		// out of.
		kv.ErrInvalidOptions, kv.ErrNoSpace, kv.ErrClockJump,
	} {
		if errors.Is(err, may) {
			return nil
		}
	}
	return err
}

// hostileUse calls everything that walks over what is stored.
func hostileUse(db *kv.DB, readOnly bool) error {
	var errs []error
	note := func(err error) {
		if err := hostileError(err); err != nil {
			errs = append(errs, err)
		}
	}
	var names []string
	note(db.View(func(tx *kv.Tx) (err error) {
		names, err = tx.ListCFs()
		return err
	}))
	for _, name := range names {
		note(db.View(func(tx *kv.Tx) error { return hostileScan(tx.CF(name)) }))
	}
	for range db.Check(context.Background()) {
	}
	if readOnly {
		return errors.Join(errs...)
	}
	for i, name := range names {
		note(db.Update(func(tx *kv.Tx) error { return hostileWrite(tx.CF(name), i) }))
	}
	_, err := db.PurgeExpired(context.Background(), kv.PurgeOptions{Force: true})
	note(err)
	if len(names) > 1 && names[0] != defaultFamily {
		note(db.DropCF(names[0]))
	}
	note(db.Checkpoint(context.Background()))
	hostileMore(db, names, note)
	for range db.Check(context.Background()) {
	}
	return errors.Join(errs...)
}

// hostileScan reads a family in every way. It stops early where there are far more rows than the
// file could hold: pages that are linked several times are found by Check only.
func hostileScan(f *kv.CF) error {
	const most = 20_000
	c := f.Cursor()
	n := 0
	for ok := c.First(); ok && n < most; ok = c.Next() {
		if n++; n%8 == 1 {
			if _, _, err := f.GetTTL(bytes.Clone(c.Key())); err != nil && !errors.Is(err, kv.ErrNotFound) {
				return err
			}
		}
		_, _ = c.Value(), n
		c.Expiry()
	}
	if err := c.Err(); err != nil {
		return err
	}
	for ok := c.Last(); ok && n < 2*most; ok = c.Prev() {
		n++
	}
	c.Seek([]byte("row01"))
	c.SeekBefore([]byte("row01"))
	if err := c.Err(); err != nil {
		return err
	}
	for range f.Expiring(time.Time{}) {
		if n++; n > 3*most {
			break
		}
	}
	_, err1 := f.Count()
	_, err2 := f.CountLive()
	_, _, err3 := f.NextExpiry()
	_, err4 := f.Get([]byte("absent"))
	if errors.Is(err4, kv.ErrNotFound) {
		err4 = nil
	}
	return errors.Join(err1, err2, err3, err4)
}

// hostileWrite changes a family in every way.
func hostileWrite(f *kv.CF, i int) error {
	if i%3 == 2 {
		return f.Clear()
	}
	var errs []error
	for n := range 30 {
		key := fmt.Appendf(nil, "row%03d", n)
		errs = append(errs, f.Put(key, bytes.Repeat([]byte{'v'}, 40*n)),
			f.Delete(fmt.Appendf(nil, "row%03d", n+1)))
	}
	errs = append(errs, f.PutTTL([]byte("timed"), make([]byte, 5000), time.Hour), f.Persist([]byte("row012")))
	if i%3 == 1 {
		errs = append(errs, f.DeleteRange([]byte("base010"), []byte("k")))
	}
	return errors.Join(errs...)
}
