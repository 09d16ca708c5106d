package fuzz

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// last gives the images of the end of a run.
func last(r *Run) (all []*crashfs.Image) {
	for im := range r.Disk.Images(crashfs.ImageOptions{From: r.Disk.Len(), Random: 2}) {
		all = append(all, im)
	}
	return all
}

func mustDo(t *testing.T, text string) *Run {
	t.Helper()
	w, err := ParseWorkload(text)
	require.NoError(t, err)
	r, err := Do(w)
	require.NoError(t, err)
	return r
}

// TestEveryBrokenTableIsSeen changes one row of one table behind the engine's back. The oracle must
// not pass it, and Check must name the invariant.
func TestEveryBrokenTableIsSeen(t *testing.T) {
	racetest.OneGoroutine(t)
	r := mustDo(t, "busy putttl.0")
	im := last(r)[0]
	const key = "victim"
	expiry := binary.BigEndian.AppendUint64(nil, startMs)
	row := append(binary.BigEndian.AppendUint64(nil, startMs), key...)
	for name, c := range map[string]struct {
		invariant string
		damage    func(tx *txn.Tx, f *cf.Family) (was txn.Info, err error)
	}{
		"expiry_row_gone": {"I1", func(tx *txn.Tx, f *cf.Family) (txn.Info,
			error) {
			return tx.Delete(f.ExpiryIndex(), row)
		}},
		"key_index_gone": {"I1", func(tx *txn.Tx, f *cf.Family) (txn.Info,
			error) {
			return tx.Delete(f.KeyIndex(), []byte(key))
		}},
		"key_index_wrong": {"I1", func(tx *txn.Tx, f *cf.Family) (txn.Info, error) {
			return tx.Put(f.KeyIndex(), []byte(key), binary.BigEndian.AppendUint64(nil, startMs+1), 0)
		}},
		"data_gone": {"I2", func(tx *txn.Tx, f *cf.Family) (txn.Info,
			error) {
			return tx.Delete(f.Data(), []byte(key))
		}},
		"row_without_expiry": {"I2", func(tx *txn.Tx, f *cf.Family) (txn.Info,
			error) {
			return tx.SetTag(f.Data(), []byte(key), 0)
		}},
		"row_with_another": {"I2", func(tx *txn.Tx, f *cf.Family) (txn.Info,
			error) {
			return tx.SetTag(f.Data(), []byte(key), startMs-1)
		}},
		"stranger": {"I1", func(tx *txn.Tx, f *cf.Family) (txn.Info, error) {
			_, err := tx.Put(f.ExpiryIndex(), append(expiry, "stranger"...), nil, 0)
			return txn.Info{Found: true}, err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			d := im.Disk(crashfs.Options{})
			db, err := r.config.open(d, 7)
			require.NoError(t, err)
			require.NoError(t, db.Update(func(tx *kv.Tx) error {
				return tx.PutExpireAt([]byte(key), []byte("v"), standing(startMs)())
			}))
			require.NoError(t, db.Close())
			j, any := &Judge{run: r}, func(verdict) error { return nil }
			_, _, err = j.recover(d, 8, any)
			require.NoError(t, err, "before the damage")

			store, err := txn.Open(path, txn.Options{FS: d, NoMap: true, NoDirect: true})
			require.NoError(t, err)
			tx, err := store.Begin(context.Background(), true)
			require.NoError(t, err)
			f, err := cf.Lookup(tx, defaultFamily)
			require.NoError(t, err)
			was, err := c.damage(tx, f)
			require.NoError(t, err)
			require.True(t, was.Found)
			require.NoError(t, tx.Commit(txn.Sync))
			require.NoError(t, store.Close())

			_, _, err = j.recover(d, 9, any)
			require.Error(t, err)
			db, err = r.config.open(d, 10)
			require.NoError(t, err)
			require.ErrorContains(t, sound(db), c.invariant)
			require.NoError(t, db.Close())
		})
	}
}

// TestOracleKnowsExpiries changes one thing that the model knows of expiries: no image may pass any
// more.
func TestOracleKnowsExpiries(t *testing.T) {
	racetest.OneGoroutine(t)
	for name, change := range map[string]func(m *Model, key string){
		"expiry": func(m *Model, key string) {
			m.put(defaultFamily, key,
				m.families[defaultFamily].value[key], startMs+1)
		},
		"none": func(m *Model, key string) {
			m.put(defaultFamily, key,
				m.families[defaultFamily].value[key], 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := mustDo(t, "busy putttl.0")
			m := r.model.clone()
			key, ok := pickTimed(m, defaultFamily, Op{}.rand())
			require.True(t, ok)
			change(m, key)
			r.States[r.newest()] = m.state()
			for _, im := range last(r) {
				_, err := (&Judge{run: r}).Image(im)
				require.ErrorContains(t, err, "contents are not those of commit")
			}
		})
	}
}

// TestOracleSeesTheClockMark lets a key's time come with a commit, exactly. Were the mark a
// millisecond lower, an open with a clock that was nudged back would show the key again.
func TestOracleSeesTheClockMark(t *testing.T) {
	racetest.OneGoroutine(t)
	r := newRun(Workload{Base: "one"})
	require.NoError(t, r.steps())
	put := func(key string) {
		require.NoError(
			t,
			r.update(kv.Sync, func(t *tx) error { return t.putTTL(defaultFamily, key, "v", longestTTL) }),
		)
	}
	put("dies")
	require.NoError(t, r.moveClock(r.clock.ms+longestTTLMs))
	put("lives")
	require.NoError(t, r.close())
	r.closings = nil // The last commit has the mark already.
	right := r.States[r.newest()]
	require.NotEqual(t, right.Stored, right.AtMark)
	require.NotEqual(t, right.Later, right.Stored)

	j, seen := &Judge{run: r}, map[string]int{}
	early := r.model.clone()
	early.mark--
	profiles := crashfs.Kill | crashfs.Prefix | crashfs.Reorder | crashfs.Torn512
	for im := range r.Disk.Images(crashfs.ImageOptions{From: r.OpEnds[0], Random: 2, Profiles: profiles}) {
		r.States[r.newest()] = right
		v, err := j.Image(im)
		require.NoError(t, err)
		if v.seq != r.newest() {
			continue
		}
		r.States[r.newest()] = early.state()
		_, err = j.Image(im)
		seen[fmt.Sprint(err != nil)]++
	}
	require.Greater(t, seen["true"], 10, "%v", seen)
	require.Greater(t, seen["false"], 10, "the third clock does not see it: %v", seen)
}

// TestClockMayGoWrongAtEveryStep puts each way in which clocks go wrong, and come right again,
// before, between and after operations on expiries: F22 and F23. The run compares all the way, the
// oracle what crashes leave.
func TestClockMayGoWrongAtEveryStep(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	names := []string{"putttl", "purge", "evict", "hold", "clearttl", "frozen", "kill", "hold", "purge"}
	ops := make([]Op, len(names))
	for i, name := range names {
		kind, ok := kindOf(name)
		require.True(t, ok)
		ops[i] = Op{kind, uint32(i)}
	}
	clock, _ := kindOf("clock")
	judged := 0
	args := racetest.Sample(20, 10)
	for arg := range uint32(args) {
		at := int(arg) % (len(ops) + 1)
		w := Workload{Base: "busy", Ops: append(append(append([]Op{}, ops[:at]...), Op{clock, arg}),
			ops[at:]...)}
		r, err := Do(w)
		require.NoError(t, err, "%s", w)
		for im := range r.Disk.Images(crashfs.ImageOptions{Profiles: crashfs.None | crashfs.Kill,
			From: r.OpEnds[at]}) {
			if mix(im.Hash())%4 != 0 {
				continue
			}
			judged++
			_, err := (&Judge{run: r}).Image(im)
			require.NoError(t, err, "%s | %d %s", w, im.Point, im.Desc())
		}
	}
	require.Greater(t, judged, 5*args)
}

// TestRandomWorkloadsReachExpiry asserts that what random workloads are for does happen to expiries
// in them. It looks at what the store says of itself, after each operation.
func TestRandomWorkloadsReachExpiry(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	var purges, evictions, dropped, emptied, clamped, followed, later int
	for _, seed := range []uint64{0, 1, 4, 7} {
		r := newRun(Random(seed, randomLength))
		var was kv.Stats
		r.observe = func(op Op) {
			if r.db == nil {
				return
			}
			now, name := r.db.Stats(), operations[op.Kind].name
			if r.clock.mark > r.clock.ms {
				clamped++
			}
			if now.Commits >= was.Commits { // The same session.
				followed += int(now.ClockSteps - min(was.ClockSteps, now.ClockSteps))
			}
			for family, f := range was.Families {
				g, there := now.Families[family]
				switch {
				case !there && f.TTLRows > 0 && name == "drop":
					dropped++
				case there && f.TTLRows > 0 && g.TTLRows == 0:
					emptied++
				case there && f.TTLRows == 0 && g.TTLRows > 0:
					later++
				}
				if there && g.PurgeBatches > f.PurgeBatches+1 {
					purges++
				}
				if there && g.Evicted > f.Evicted {
					evictions++
				}
			}
			was = now
		}
		require.NoError(t, r.all())
	}
	require.NotZero(t, purges, "purges of more than one batch")
	require.NotZero(t, evictions, "evictions")
	require.NotZero(t, dropped, "families dropped with expiries")
	require.NotZero(t, emptied, "families whose last expiry went")
	require.NotZero(t, later, "families whose first expiry came")
	require.NotZero(t, clamped, "clocks that were nudged back")
	require.NotZero(t, followed, "clocks that were wrong")
	t.Log(purges, evictions, dropped, emptied, later, clamped, followed)
}

// TestOracleSeesTheMarkOfAClose has a key expire in a session that only reads. An engine that
// forgets what reads have seen fails the model at the next open, and the oracle in images after the
// Close.
func TestOracleSeesTheMarkOfAClose(t *testing.T) {
	racetest.OneGoroutine(t)
	r := newRun(Workload{Base: "one"})
	require.NoError(t, r.steps())
	require.NoError(
		t,
		r.update(kv.Sync, func(t *tx) error { return t.putTTL(defaultFamily, "dies", "v", longestTTL) }),
	)
	require.NoError(t, opReopen(r, nil))
	require.NoError(t, r.moveClock(r.clock.ms+longestTTLMs))
	require.NoError(t, r.close())
	right := r.closings[len(r.closings)-1]
	require.NotEqual(t, never, right.end)
	require.NotEqual(t, r.States[r.newest()].AtMark, right.state.AtMark)
	j, seen := &Judge{run: r}, map[bool]int{}
	for im := range r.Disk.Images(crashfs.ImageOptions{From: r.Disk.Len()}) {
		r.closings[len(r.closings)-1] = right
		_, err := j.Image(im)
		require.NoError(t, err)
		r.closings = r.closings[:len(r.closings)-1]
		_, err = j.Image(im)
		seen[err != nil]++
		r.closings = append(r.closings, right)
	}
	require.NotZero(t, seen[true], "%v", seen)
}
