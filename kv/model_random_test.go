package kv_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// model is what a store should hold: family -> key -> value.
type model map[string]map[string]string

func (m model) clone() model {
	c := make(model, len(m))
	for name, rows := range m {
		c[name] = maps.Clone(rows)
	}
	return c
}

// TestRandomOperationsAgreeWithTheModel runs the same random transactions on a store and on maps,
// and compares all of both after each. Page and cache sizes differ so that splits, merges, spills
// and checkpoints happen at other places.
func TestRandomOperationsAgreeWithTheModel(t *testing.T) {
	racetest.OneGoroutine(t)
	for i, o := range []kv.Options{
		{Durability: kv.NoSync},
		{PageSize: 8192, CacheBytes: 256 << 10, CheckpointBytes: 64 << 10, Durability: kv.NoSync},
		{CacheBytes: 128 << 10, CheckpointBytes: 32 << 10},
		{PageSize: 65536, CacheBytes: 1 << 20},
	} {
		t.Run(fmt.Sprint(o.PageSize, "/", o.CacheBytes), func(t *testing.T) {
			r := &run{t: t, rnd: seeded(t, uint64(i)+42), fs: vfs.NewMemory(), opts: o,
				model: model{"default": {}}}
			r.open()
			for range racetest.Sample(200, 80) {
				r.transaction()
				if r.rnd.IntN(15) == 0 {
					r.reopen()
				}
				r.compare()
			}
			checkStore(t, r.db)
			require.NoError(t, r.db.Close())
		})
	}
}

// run is one run of the model test.
type run struct {
	t     *testing.T
	rnd   *rand.Rand
	fs    vfs.FS
	opts  kv.Options
	db    *kv.DB
	model model // after the last commit
}

func (r *run) open() {
	var err error
	r.db, err = openfs.Open(r.fs, path, &r.opts, txn.Options{SegmentSize: 64 << 10})
	require.NoError(r.t, err)
}

func (r *run) reopen() {
	switch r.rnd.IntN(3) {
	case 0:
		require.NoError(r.t, r.db.Checkpoint(r.t.Context()))
		checkStore(r.t, r.db)
	default:
		require.NoError(r.t, r.db.Close())
		r.open()
	}
}

// key is one of a few hundred, some with a long prefix in common, some as long as may be.
func (r *run) key() []byte {
	n := r.rnd.IntN(1000)
	switch n % 5 {
	case 0:
		return fmt.Appendf(nil, "%s%03d", strings.Repeat("common/", 20), n)
	case 1:
		return bytes.Repeat([]byte{'z'}, 1+n)
	case 2:
		return fmt.Appendf(make([]byte, 0, 1024), "%0*d", 1024, n)
	}
	return fmt.Appendf(nil, "%d", n)
}

func (r *run) value() []byte {
	n := r.rnd.IntN(60)
	if r.rnd.IntN(12) == 0 {
		n = r.rnd.IntN(20_000)
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.rnd.IntN(256))
	}
	return b
}

func (r *run) family(m model) string {
	names := slices.Sorted(maps.Keys(m))
	return names[r.rnd.IntN(len(names))]
}

// transaction makes a few random changes and commits them, or not.
func (r *run) transaction() {
	m := r.model.clone()
	no := errors.New("rolled back")
	err := r.db.Update(func(tx *kv.Tx) error {
		for range 1 + r.rnd.IntN(80) {
			if r.rnd.IntN(12) > 0 {
				r.change(tx, m)
				continue
			}
			save, before := tx.Savepoint(), m.clone()
			for range r.rnd.IntN(10) {
				r.change(tx, m)
			}
			if r.rnd.IntN(2) == 0 {
				require.NoError(r.t, tx.RollbackTo(save))
				m = before
			}
		}
		requireModel(r.t, tx, m)
		if r.rnd.IntN(5) == 0 {
			return no
		}
		return nil
	})
	if errors.Is(err, no) {
		return
	}
	require.NoError(r.t, err)
	r.model = m
}

// change makes one random change to the store and to the model.
func (r *run) change(tx *kv.Tx, m model) {
	t, name := r.t, r.family(m)
	family, rows := tx.CF(name), m[name]
	switch p := r.rnd.IntN(100); {
	case p < 55:
		k, v := r.key(), r.value()
		require.NoError(t, family.Put(k, v))
		rows[string(k)] = string(v)
	case p < 75:
		k := r.key()
		require.NoError(t, family.Delete(k))
		delete(rows, string(k))
	case p < 80:
		k, v := r.key(), r.value()
		_, had := rows[string(k)]
		absent := r.rnd.IntN(2) == 0
		written, err := family.PutWith(k, v, kv.PutOptions{IfAbsent: absent, IfPresent: !absent})
		require.NoError(t, err)
		require.Equal(t, had != absent, written)
		if written {
			rows[string(k)] = string(v)
		}
	case p < 84:
		lo := r.key()
		hi := append(bytes.Clone(lo), '9')
		if r.rnd.IntN(8) == 0 {
			hi = r.key()
		}
		require.NoError(t, family.DeleteRange(lo, hi))
		maps.DeleteFunc(rows, func(k, _ string) bool { return k >= string(lo) && k < string(hi) })
	case p < 86:
		prefix := r.key()
		prefix = prefix[:1+r.rnd.IntN(len(prefix))]
		require.NoError(t, family.DeletePrefix(prefix))
		maps.DeleteFunc(rows, func(k, _ string) bool { return strings.HasPrefix(k, string(prefix)) })
	case p < 90:
		r.sweep(tx, name, rows)
	case p < 94:
		fresh := fmt.Sprint("family", r.rnd.IntN(6))
		err := tx.CreateCF(fresh, kv.CFOptions{})
		if m[fresh] != nil {
			require.ErrorIs(t, err, kv.ErrCFExists)
			return
		}
		require.NoError(t, err)
		m[fresh] = map[string]string{}
	case p < 96:
		err := tx.DropCF(name)
		if name == "default" {
			require.ErrorIs(t, err, kv.ErrCFReserved)
			return
		}
		require.NoError(t, err)
		delete(m, name)
	case p < 99:
		to := fmt.Sprint("family", r.rnd.IntN(6))
		err := tx.RenameCF(name, to)
		if name == "default" || m[to] != nil {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		m[to] = rows
		delete(m, name)
	default:
		require.NoError(t, family.Clear())
		clear(rows)
	}
}

// sweep walks a part of a family with a cursor and deletes on the way.
func (r *run) sweep(tx *kv.Tx, name string, rows map[string]string) {
	c := tx.CF(name).Cursor()
	step := c.Next
	if r.rnd.IntN(2) == 0 {
		step = c.Prev
	}
	c.Seek(r.key())
	for i := 0; c.Valid() && i < 30; i++ {
		if r.rnd.IntN(3) == 0 {
			k := string(c.Key())
			require.NoError(r.t, c.Delete())
			delete(rows, k)
		}
		step()
	}
	require.NoError(r.t, c.Err())
}

// compare reads the whole store in a snapshot of its own.
func (r *run) compare() {
	require.NoError(r.t, r.db.View(func(tx *kv.Tx) error {
		requireModel(r.t, tx, r.model)
		return nil
	}))
}

// requireModel compares families, counts, order and every row.
func requireModel(t *testing.T, tx *kv.Tx, m model) {
	t.Helper()
	names, err := tx.ListCFs()
	require.NoError(t, err)
	require.Equal(t, slices.Sorted(maps.Keys(m)), names)
	for _, name := range names {
		keys, i := slices.Sorted(maps.Keys(m[name])), 0
		for k, v := range tx.CF(name).All() {
			if i >= len(keys) || string(k) != keys[i] || string(v) != m[name][keys[i]] {
				t.Fatalf("family %q, row %d: key %.40q with %d bytes; the model has %d rows", name,
					i, k, len(v), len(keys))
			}
			i++
		}
		require.Equal(t, len(keys), i)
		n, err := tx.CF(name).Count()
		require.NoError(t, err)
		require.Equal(t, int64(len(keys)), n)
	}
}
