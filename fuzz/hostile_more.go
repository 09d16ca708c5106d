package fuzz

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/ebbkv/ebb/kv"
)

// hostileMore is the rest of what a user can do to a store, with hostileWrite, while a reader holds
// the state before.
func hostileMore(db *kv.DB, names []string, tell func(error)) {
	note := func(err error) {
		if !errors.Is(err, kv.ErrCFExists) { // An earlier session had to leave its family there.
			tell(err)
		}
	}
	held, err := db.Begin(context.Background(), false)
	if err != nil {
		note(err)
		return
	}
	defer func() { note(held.Rollback()) }()
	for i, name := range names {
		f := db.CF(name)
		batch := db.NewBatch()
		for n := range 40 { // enough for several hands, and in order: leaves of their own
			batch.CF(name).Put(fmt.Appendf(nil, "zz%03d", n), bytes.Repeat([]byte{'b'}, 300))
			batch.CF(name).Delete(fmt.Appendf(nil, "row%03d", 3*n))
		}
		note(db.Apply(context.Background(), batch))
		note(f.Put([]byte("large"), make([]byte, 40_000)))
		note(f.DeletePrefix([]byte("row01")))
		note(f.PutTTL([]byte("row013"), []byte("v"), time.Minute))
		_, err := f.PutWith([]byte("row014"), make([]byte, 3000), kv.PutOptions{KeepTTL: true})
		note(err)
		_, err = f.CompareAndDelete([]byte("row014"), []byte("v"))
		note(err)
		note(db.Update(func(tx *kv.Tx) error {
			sp := tx.Savepoint()
			return errors.Join(tx.CF(name).Clear(), tx.RollbackTo(sp),
				tx.CF(name).DeleteRange([]byte("zz01"), nil))
		}))
		note(db.AlterCF(name, kv.CFOptions{DefaultTTL: time.Duration(i) * time.Hour}))
		note(hostileScan(held.CF(name)))
	}
	rows := map[string]string{"1": "one", "2": "two"}
	if err := db.CreateCF("loaded by the test", kv.CFOptions{}); err != nil {
		note(err)
		return
	}
	if _, err := db.BulkLoad(context.Background(), "loaded by the test", func(yield func(k, v []byte) bool) {
		for _, k := range []string{"1", "2"} {
			if !yield([]byte(k), []byte(rows[k])) {
				return
			}
		}
	}); err != nil {
		note(err)
		return
	}
	got := map[string]string{}
	err = db.View(func(tx *kv.Tx) error {
		c := tx.CF("loaded by the test").Cursor()
		for ok := c.First(); ok; ok = c.Next() {
			got[string(c.Key())] = string(c.Value())
		}
		return c.Err()
	})
	if note(err); err == nil && !maps.Equal(got, rows) {
		note(fmt.Errorf("%w: a family that was loaded a moment ago has %d rows", errWrong, len(got)))
	}
	note(db.RenameCF("loaded by the test", "renamed by the test"))
	note(db.DropCF("renamed by the test"))
}
