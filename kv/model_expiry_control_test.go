package kv_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

// controlKind is an operation that is not about one key.
type controlKind struct {
	name   string
	weight int
	run    func(r *scriptRun, s step) error
}

var control = slices.Concat(controlKinds, manyKinds)

var controlKinds = []controlKind{
	{"clock", 14, func(r *scriptRun, s step) error {
		d := time.Duration(s[3]) * 37 * time.Millisecond
		switch s[2] % 16 {
		case 0:
			d = time.Duration(s[3]) * time.Hour
		case 1, 2:
			d = -d
		case 3:
			d = -time.Duration(s[3]) * time.Minute
		}
		r.clock.move(d)
		return nil
	}},
	{"purge", 6, (*scriptRun).purgeStep},
	{"scan", 3, func(r *scriptRun, s step) error {
		// Only here do scans leave notes: those of the comparison are forgotten.
		if r.tx != nil {
			r.noteExpired(r.own, r.txNow)
			return drain(r.tx)
		}
		r.noteExpired(r.state, r.reading())
		return r.db.View(drain)
	}},
	{"begin", 6, func(r *scriptRun, s step) (err error) {
		if r.tx != nil {
			return nil
		}
		_, r.txNow = r.visible(true)
		r.own, r.ownSwept = r.state.clone(), maps.Clone(r.swept)
		r.tx, err = r.db.Begin(context.Background(), true)
		if err != nil {
			return err
		}
		if s[3]%3 == 0 {
			r.tx.SetDurability(kv.Sync)
		}
		return same("now", r.tx.Now().UnixMilli(), r.txNow)
	}},
	{"commit", 5, func(r *scriptRun, s step) error {
		if r.tx == nil {
			return nil
		}
		err := r.tx.Commit()
		r.state, r.tx, r.saves, r.handles = r.own, nil, nil, nil
		r.swept = r.ownSwept
		return expect("commit", err, nil)
	}},
	{"rollback", 2, func(r *scriptRun, s step) error {
		if r.tx == nil {
			return nil
		}
		err := r.tx.Rollback()
		r.tx, r.saves, r.handles = nil, nil, nil
		return expect("rollback", err, nil)
	}},
	{"save", 3, func(r *scriptRun, s step) error {
		if r.tx != nil && len(r.saves) < 4 {
			r.saves = append(r.saves, save{r.tx.Savepoint(), r.own.clone(), maps.Clone(r.ownSwept)})
		}
		return nil
	}},
	{"back", 3, func(r *scriptRun, s step) error {
		if r.tx == nil || len(r.saves) == 0 {
			return nil
		}
		i := int(s[3]) % len(r.saves)
		r.own, r.ownSwept = r.saves[i].state.clone(), maps.Clone(r.saves[i].swept)
		r.saves = r.saves[:i+1]
		return expect("back", r.tx.RollbackTo(r.saves[i].at), nil)
	}},
	{"create", 3, func(r *scriptRun, s step) error {
		name := modelFamilies[int(s[1])%len(modelFamilies)]
		var o kv.CFOptions
		if s[3]%2 == 0 {
			o.DefaultTTL = time.Duration(s[3]) * 100 * time.Millisecond
		}
		return r.catalog(func(tx *kv.Tx, state modelState) error {
			if f := state[name]; f != nil {
				f.defaultTTL = o.DefaultTTL.Milliseconds()
				return expect("alter", tx.AlterCF(name, o), nil)
			}
			if err := tx.CreateCF(name, o); err != nil {
				return err
			}
			f, err := kv.FindFamily(tx, name)
			if err != nil {
				return err
			}
			state[name] = &modelFamily{uint64(f.Base), o.DefaultTTL.Milliseconds(), map[string]modelRow{}}
			return nil
		})
	}},
	{"drop", 1, func(r *scriptRun, s step) error {
		name := modelFamilies[int(s[1])%len(modelFamilies)]
		return r.catalog(func(tx *kv.Tx, state modelState) error {
			if name == "default" || state[name] == nil {
				return nil
			}
			delete(state, name)
			return expect("drop", tx.DropCF(name), nil)
		})
	}},
	{"hold", 2, func(r *scriptRun, s step) (err error) {
		if r.held != nil {
			err := r.held.Rollback()
			r.held = nil
			return err
		}
		r.heldState, r.heldNow = r.state.clone(), r.reading()
		r.held, err = r.db.Begin(context.Background(), false)
		return err
	}},
	{"checkpoint", 1, func(r *scriptRun, s step) error {
		if r.tx != nil {
			return nil // It would wait for the transaction.
		}
		return r.db.Checkpoint(context.Background())
	}},
	{"reopen", 1, func(r *scriptRun, s step) error {
		if err := r.end(); err != nil {
			return err
		}
		if err := errors.Join(r.stats(), r.db.Close(), r.open()); err != nil {
			return err
		}
		if err := r.stillDead(); err != nil {
			return err
		}
		return r.reopened()
	}},
	{"crash", 1, func(r *scriptRun, s step) error {
		// Every commit that returned is in the files, whatever it waited for: only the process
		// dies.
		image, err := copyFiles(r.fs)
		if err != nil {
			return err
		}
		if err := errors.Join(r.end(), r.db.Close()); err != nil {
			return err
		}
		r.fs = image
		if err := r.open(); err != nil {
			return err
		}
		return r.reopened()
	}},
	{"check", 1, func(r *scriptRun, s step) error {
		if r.tx != nil {
			return nil // It would wait for the transaction.
		}
		for p := range r.db.Check(context.Background()) {
			return fmt.Errorf("check: %v", p)
		}
		return nil
	}},
	{"stats", 2, func(r *scriptRun, s step) error {
		return r.stats()
	}},
}

func drain(tx *kv.Tx) error {
	names, err := tx.ListCFs()
	for _, name := range names {
		for range tx.CF(name).All() {
		}
	}
	return err
}

// copyFiles makes what a kill leaves.
func copyFiles(from vfs.FS) (vfs.FS, error) {
	to := vfs.NewMemory()
	names, err := from.List("dir")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		src, err := from.Open("dir/"+name, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a segment that the open before has left to be removed
		}
		if err != nil {
			return nil, err
		}
		size, err := src.Size()
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(io.NewSectionReader(src, 0, size))
		if err != nil {
			return nil, err
		}
		dst, err := to.Open("dir/"+name, vfs.Write|vfs.Create)
		if err != nil {
			return nil, err
		}
		if _, err := dst.WriteAt(content, 0); err != nil {
			return nil, err
		}
		if err := errors.Join(src.Close(), dst.Close()); err != nil {
			return nil, err
		}
	}
	return to, nil
}

// kindTable has one entry for each unit of weight, so that a byte picks a kind.
var kindTable = func() (table []int) {
	add := func(weight, i int) {
		for range weight {
			table = append(table, i)
		}
	}
	for i, k := range slices.Concat(readKinds, writeKinds) {
		add(k.weight, i)
	}
	for i, c := range control {
		add(c.weight, 1000+i)
	}
	return table
}()
