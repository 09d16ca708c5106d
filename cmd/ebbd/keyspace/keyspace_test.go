package keyspace

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/kv/kvtest"
)

// testStore is a store in memory whose clock the test sets. It is checked at the end: no row
// belongs to a collection that no key names.
type testStore struct {
	*Store
	t     *testing.T
	db    *kv.DB
	clock *kvtest.Clock
}

func openTest(t *testing.T) *testStore {
	t.Helper()
	s := &testStore{Store: NewStore(2), t: t, clock: kvtest.NewClock(time.UnixMilli(1_800_000_000_400))}
	s.db = kvtest.Open(t, &kv.Options{Clock: s.clock.Now, OnExpireTx: s.OnExpireTx})
	require.NoError(t, s.Setup(s.db))
	t.Cleanup(s.requireNoOrphans)
	return s
}

// update runs fn in database 0.
func (s *testStore) update(fn func(sp *Space)) {
	s.t.Helper()
	require.NoError(s.t, s.db.Update(func(tx *kv.Tx) error {
		fn(s.Space(tx, 0))
		return nil
	}))
}

// settle deletes what has expired and reclaims dead rows until nothing is left to do.
func (s *testStore) settle() {
	s.t.Helper()
	for more := true; more; {
		require.NoError(s.t, s.db.Update(func(tx *kv.Tx) error {
			_, due, err := s.Purge(tx, 100, false)
			if err != nil {
				return err
			}
			dead, err := s.Reclaim(tx)
			more = due || dead
			return err
		}))
		require.NoError(s.t, s.db.Update(func(tx *kv.Tx) error {
			pending, err := s.Pending(tx)
			more = more || pending
			return err
		}))
	}
}

func (s *testStore) requireNoOrphans() {
	s.t.Helper()
	s.settle()
	require.NoError(s.t, s.db.View(func(tx *kv.Tx) error {
		for n := range s.Databases() {
			dead, _, err := s.Space(tx, n).Sweep(0, 1<<20)
			if err != nil {
				return err
			}
			require.Empty(s.t, dead, "collections that no key names in database %d", n)
			v, err := s.Space(tx, n).Verify(context.Background())
			if err != nil {
				return err
			}
			require.Empty(s.t, v.Problems)
		}
		return nil
	}))
}

// rows returns the number of element rows of database 0.
func (s *testStore) rows() (n int64) {
	s.t.Helper()
	require.NoError(s.t, s.db.View(func(tx *kv.Tx) (err error) {
		n, err = tx.CF("e0").Count()
		return err
	}))
	return n
}

func setFields(t *testing.T, sp *Space, key string, n int, expiry int64) Row {
	t.Helper()
	row, err := sp.LoadOrCreate([]byte(key), TypeHash)
	require.NoError(t, err)
	for i := range n {
		_, err := sp.SetField([]byte(key), &row, []byte(strconv.Itoa(i)), []byte("v"), expiry)
		require.NoError(t, err)
	}
	require.NoError(t, sp.Save([]byte(key), &row))
	return row
}

// TestOverwrittenFieldsLeaveTheMasterRow: a write of a field that counts as before is one write. The
// store verifies the counts at its end.
func TestOverwrittenFieldsLeaveTheMasterRow(t *testing.T) {
	s := openTest(t)
	later := s.clock.Now().Add(time.Hour).UnixMilli()
	writes := func(fields int, expiry int64) (n int64) {
		s.update(func(sp *Space) {
			before := s.Writes()
			setFields(t, sp, "h", fields, expiry)
			n = s.Writes() - before
		})
		return n
	}
	const header, master = 1, 1
	require.EqualValues(t, header+1+master, writes(1, NoExpiry))
	require.EqualValues(t, 1, writes(1, NoExpiry))
	require.EqualValues(t, 2+master, writes(2, NoExpiry))
	require.EqualValues(t, 2, writes(2, NoExpiry))
	require.EqualValues(t, 1+master, writes(1, later))
	require.EqualValues(t, 1+master, writes(1, NoExpiry), "while a field may have an expiry")
	s.update(func(sp *Space) {
		row, err := sp.LoadAs([]byte("h"), TypeHash)
		require.NoError(t, err)
		deleted, err := sp.DeleteField(&row, []byte("1"))
		require.NoError(t, err)
		require.True(t, deleted)
		require.NoError(t, sp.Save([]byte("h"), &row))
		row, err = sp.LoadAs([]byte("h"), TypeHash)
		require.NoError(t, err)
		require.EqualValues(t, 1, row.Count)
	})
}

func TestRowsOfADeadCollectionAreReclaimed(t *testing.T) {
	key := []byte("h")
	for _, n := range []int{1, smallCollection + 1, 2*reclaimStep + 1} {
		for name, end := range map[string]func(sp *Space, row *Row) error{
			"delete":  func(sp *Space, row *Row) error { return sp.Delete(key, row) },
			"replace": func(sp *Space, row *Row) error { return sp.SetString(key, nil, row, 0) },
			"flush":   func(sp *Space, _ *Row) error { return sp.Flush() },
			"rename_over": func(sp *Space, row *Row) error {
				if err := sp.SetString([]byte("s"), []byte("v"), &Row{}, 0); err != nil {
					return err
				}
				s, err := sp.Load([]byte("s"))
				if err != nil {
					return err
				}
				return sp.Rename([]byte("s"), &s, key, row)
			},
			"expire": func(sp *Space, row *Row) error { return sp.SetExpiry(key, row, sp.Now+1) },
		} {
			t.Run(fmt.Sprintf("%s_%d", name, n), func(t *testing.T) {
				s := openTest(t)
				s.update(func(sp *Space) { setFields(t, sp, "h", n, NoExpiry) })
				s.update(func(sp *Space) {
					row, err := sp.Load(key)
					require.NoError(t, err)
					require.NoError(t, end(sp, &row))
				})
				s.clock.Advance(time.Second)
				s.settle()
				require.Zero(t, s.rows())
			})
		}
	}
}

// TestAnExpiredRowTakesItsCollectionAlong: a read found the master row expired, and it was evicted in a
// transaction of its own; its collection was retired by the next turn, and a crash between the two left
// an orphan. A write over an expired row lost the id until a sweep.
func TestAnExpiredRowTakesItsCollectionAlong(t *testing.T) {
	key := []byte("kh")
	for name, end := range map[string]func(s *testStore) error{
		"eviction": func(s *testStore) error {
			if _, err := s.db.CF("m0").Get(key); !errors.Is(err, kv.ErrNotFound) {
				return fmt.Errorf("a read: %w", err)
			}
			return s.db.Update(func(*kv.Tx) error { return nil })
		},
		"overwrite": func(s *testStore) error {
			s.update(func(sp *Space) { require.NoError(t, sp.SetString([]byte("h"), nil, &Row{}, 0)) })
			return nil
		},
		"new_collection": func(s *testStore) error {
			s.update(func(sp *Space) { setFields(t, sp, "h", 1, NoExpiry) })
			return nil
		},
		"purge": func(s *testStore) error {
			_, err := s.db.PurgeExpired(context.Background(), kv.PurgeOptions{})
			return err
		},
	} {
		for _, n := range []int{1, smallCollection + 1} {
			t.Run(fmt.Sprintf("%s_%d", name, n), func(t *testing.T) {
				s := openTest(t)
				s.Report.Store(true)
				t.Cleanup(func() { s.TakeExpired() }) // else settle waits for it
				s.update(func(sp *Space) {
					row := setFields(t, sp, "h", n, NoExpiry)
					require.NoError(t, sp.SetExpiry([]byte("h"), &row, sp.Now+1000))
				})
				s.clock.Advance(time.Minute)
				require.NoError(t, end(s))
				require.NoError(t, s.db.View(func(tx *kv.Tx) error {
					v, err := s.Space(tx, 0).Verify(context.Background())
					require.Empty(t, v.Problems)
					require.Zero(t, v.Orphans)
					return err
				}))
				require.Equal(t, []ExpiredKey{{0, []byte("h")}}, s.TakeExpired())
				keys, _ := s.Expired()
				require.EqualValues(t, 1, keys)
			})
		}
	}
}

// TestAnIdThatAPurgeHasLostIsSwept: the master row of a collection is deleted and the id retired in
// one transaction, except that another program may purge a store. Sweep finds what it left.
func TestAnIdThatAPurgeHasLostIsSwept(t *testing.T) {
	s := openTest(t)
	s.update(func(sp *Space) {
		setFields(t, sp, "lost", 10, NoExpiry)
		setFields(t, sp, "kept", 10, NoExpiry)
	})
	require.NoError(t, s.db.Update(func(tx *kv.Tx) error { return tx.CF("m0").Delete([]byte("klost")) }))
	var dead []uint64
	s.update(func(sp *Space) {
		var err error
		dead, _, err = sp.Sweep(0, 100)
		require.NoError(t, err)
		require.Len(t, dead, 1)
		n, err := sp.RetireDead(append(dead, dead[0]+1)) // the second one lives
		require.NoError(t, err)
		require.Equal(t, 1, n)
	})
	s.settle()
	require.EqualValues(t, 11, s.rows())
}

func TestAHashEndsWithItsLastField(t *testing.T) {
	s := openTest(t)
	s.update(func(sp *Space) { setFields(t, sp, "h", 3, sp.Now+1000) })
	s.update(func(sp *Space) {
		row, err := sp.Load([]byte("h"))
		require.NoError(t, err)
		require.True(t, row.HasFieldTTL())
		expiry, err := sp.Expiry([]byte("h"), &row)
		require.NoError(t, err)
		require.Zero(t, expiry, "the user has set none")
		next, err := sp.NextChange([]byte("h"), &row)
		require.NoError(t, err)
		require.Equal(t, sp.Now+1000, next)
	})
	s.clock.Advance(time.Second)
	s.update(func(sp *Space) {
		row, err := sp.Load([]byte("h"))
		require.NoError(t, err)
		require.Zero(t, row.Type)
		n, err := sp.Count()
		require.NoError(t, err)
		require.Zero(t, n)
	})
	s.settle()
	require.Zero(t, s.rows())
}

func TestDumpRestoresEveryTypeAndRefusesDamage(t *testing.T) {
	s := openTest(t)
	s.update(func(sp *Space) {
		require.NoError(t, sp.SetString([]byte("string"), []byte("v"), &Row{}, 0))
		setFields(t, sp, "hash", 100, NoExpiry)
		list, err := sp.LoadOrCreate([]byte("list"), TypeList)
		require.NoError(t, err)
		set, err := sp.LoadOrCreate([]byte("set"), TypeSet)
		require.NoError(t, err)
		zset, err := sp.LoadOrCreate([]byte("zset"), TypeZSet)
		require.NoError(t, err)
		for i := range 10 {
			b := []byte(strconv.Itoa(i))
			require.NoError(t, sp.Push(&list, i%2 == 0, b))
			_, err := sp.AddMember(&set, b)
			require.NoError(t, err)
			require.NoError(t, sp.SetScore(&zset, b, float64(-i), false, 0))
		}
		require.NoError(t, sp.Save([]byte("list"), &list))
		require.NoError(t, sp.Save([]byte("set"), &set))
		require.NoError(t, sp.Save([]byte("zset"), &zset))
	})
	for _, key := range []string{"string", "hash", "list", "set", "zset"} {
		t.Run(key, func(t *testing.T) {
			s.update(func(sp *Space) {
				row, err := sp.Load([]byte(key))
				require.NoError(t, err)
				dump, err := sp.Dump(&row)
				require.NoError(t, err)
				copied := []byte(key + "2")
				require.NoError(t, sp.Restore(copied, dump, &Row{}, 0))
				again, err := sp.Load(copied)
				require.NoError(t, err)
				require.Equal(t, row.Type, again.Type)
				require.Equal(t, row.Count, again.Count)
				for i := range dump {
					dump[i] ^= 1
					require.ErrorIs(t, sp.Restore([]byte("x"), dump, &Row{}, 0), ErrBadDump)
					dump[i] ^= 1
					require.ErrorIs(t, sp.Restore([]byte("x"), dump[:i], &Row{}, 0), ErrBadDump)
				}
			})
		})
	}
}

func TestMasterRowsOfOtherProgramsAreRefused(t *testing.T) {
	for _, row := range [][]byte{
		nil, []byte("q"), []byte("h"), make([]byte, rowSize), append([]byte("l"), make([]byte, 16)...),
		append([]byte("h\x00\x00\x00\x00\x00\x00\x00\x00"), make([]byte, 8)...), // no id
		append([]byte("h\x00\x00\x00\x00\x00\x00\x00\x01"), 0xff, 0, 0, 0, 0, 0, 0, 0),
	} {
		_, err := decodeRow(row)
		require.ErrorIs(t, err, errCorrupt, "%q", row)
	}
	db := kvtest.Open(t, nil)
	require.NoError(t, db.Update(func(tx *kv.Tx) error { return tx.EnsureCF("users", kv.CFOptions{}) }))
	require.ErrorContains(t, NewStore(1).Setup(db), `the store has the family "users"`)
}

func TestSwappedDatabasesKeepTheirRows(t *testing.T) {
	s := openTest(t)
	s.update(func(sp *Space) {
		setFields(t, sp, "h", 100, NoExpiry)
		require.NoError(t, s.SwapDB(sp.Tx(), 0, 1))
		require.NoError(t, s.SwapDB(sp.Tx(), 1, 1))
	})
	require.NoError(t, s.db.View(func(tx *kv.Tx) error {
		row, err := s.Space(tx, 1).Load([]byte("h"))
		require.NoError(t, err)
		require.EqualValues(t, 100, row.Count)
		row, err = s.Space(tx, 0).Load([]byte("h"))
		require.Zero(t, row.Type)
		return err
	}))
	for problem := range s.db.Check(context.Background()) {
		t.Error(problem)
	}
}

func TestVerifyFindsRowsThatContradictEachOther(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(tx *kv.Tx, id []byte) error
		want   string
	}{
		"row_missing": {func(tx *kv.Tx, id []byte) error {
			return tx.CF("e0").Delete(append(id, "f0"...))
		}, `key "h": a hash of 3 elements has 2 rows`},
		"header_missing": {func(tx *kv.Tx, id []byte) error {
			return tx.CF("e0").Delete(id)
		}, `key "h": the header row of its hash is missing, or names another key`},
		"kind": {func(tx *kv.Tx, id []byte) error {
			return tx.CF("e0").Put(append(id, "mx"...), nil)
		}, `key "h": a hash has an element row of kind 'm'`},
		"master": {func(tx *kv.Tx, _ []byte) error {
			return tx.CF("m0").Put([]byte("kh"), []byte("h"))
		}, `key "kh": no master row`},
	} {
		t.Run(name, func(t *testing.T) {
			s := &testStore{Store: NewStore(1), t: t, clock: kvtest.NewClock(time.UnixMilli(1e12))}
			s.db = kvtest.Open(t, &kv.Options{Clock: s.clock.Now})
			require.NoError(t, s.Setup(s.db))
			var row Row
			s.update(func(sp *Space) { row = setFields(t, sp, "h", 3, NoExpiry) })
			require.NoError(t, s.db.Update(func(tx *kv.Tx) error {
				return c.damage(tx, binary.BigEndian.AppendUint64(nil, row.ID))
			}))
			s.update(func(sp *Space) {
				v, err := sp.Verify(context.Background())
				require.NoError(t, err)
				require.Len(t, v.Problems, 1)
				require.Contains(t, v.Problems[0], c.want)
			})
		})
	}
}
