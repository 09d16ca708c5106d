package cf_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/txn"
)

// open opens a store in memory; clean-up proves the catalog and the store.
func open(t *testing.T) *txn.Store {
	t.Helper()
	s, err := txn.Open("test.ebb", txn.Options{FS: vfs.NewMemory()})
	require.NoError(t, err)
	t.Cleanup(func() {
		view(t, s, func(tx *txn.Tx) {
			cf.Check(tx, func(family string, err error) bool {
				t.Errorf("catalog: %s: %v", family, err)
				return true
			})
		})
		s.Check(context.Background(), func(p txn.Problem) bool {
			t.Errorf("check: %+v", p)
			return true
		})
		require.NoError(t, s.Close())
	})
	return s
}

func view(t *testing.T, s *txn.Store, fn func(tx *txn.Tx)) {
	t.Helper()
	tx, err := s.Begin(context.Background(), false)
	require.NoError(t, err)
	defer tx.Rollback()
	fn(tx)
}

func update(t *testing.T, s *txn.Store, fn func(tx *txn.Tx)) {
	t.Helper()
	tx, err := s.Begin(t.Context(), true)
	require.NoError(t, err)
	defer tx.Rollback()
	fn(tx)
	require.NoError(t, tx.Commit(txn.NoSync))
}

func names(t *testing.T, tx *txn.Tx) (all []string) {
	t.Helper()
	require.NoError(t, cf.Each(tx, func(f *cf.Family) bool {
		all = append(all, f.Name)
		return true
	}))
	return all
}

func TestFamilyIsCreatedAlteredRenamedAndDropped(t *testing.T) {
	s := open(t)
	var base txn.TreeID
	update(t, s, func(tx *txn.Tx) {
		f, err := cf.Create(tx, "a", cf.Options{DefaultTTLMs: 5})
		require.NoError(t, err)
		base = f.Base
		require.True(t, tx.Exists(f.Data()))
		require.False(t, tx.Exists(f.KeyIndex()))
		_, err = cf.Create(tx, "a", cf.Options{})
		require.ErrorIs(t, err, cf.ErrExists)
		_, err = tx.Put(f.Data(), []byte("k"), []byte("v"), 0)
		require.NoError(t, err)
	})
	update(t, s, func(tx *txn.Tx) {
		require.NoError(t, cf.Alter(tx, "a", cf.Options{DefaultTTLMs: 7}))
		require.NoError(t, cf.Rename(tx, "a", "b"))
		require.ErrorIs(t, cf.Rename(tx, "a", "c"), cf.ErrNotFound)
		require.ErrorIs(t, cf.Rename(tx, "b", "b"), cf.ErrExists)
		require.ErrorIs(t, cf.Rename(tx, cf.Default, "c"), cf.ErrReserved)
	})
	view(t, s, func(tx *txn.Tx) {
		f, err := cf.Lookup(tx, "b")
		require.NoError(t, err)
		require.Equal(t, &cf.Family{Name: "b", Base: base, Options: cf.Options{DefaultTTLMs: 7}}, f)
		require.Equal(t, uint64(1), tx.Rows(f.Data()))
		f, err = cf.FindBase(tx, base)
		require.NoError(t, err)
		require.Equal(t, "b", f.Name)
	})
	update(t, s, func(tx *txn.Tx) {
		require.NoError(t, cf.Drop(tx, "b"))
		require.ErrorIs(t, cf.Drop(tx, "b"), cf.ErrNotFound)
		require.ErrorIs(t, cf.Drop(tx, cf.Default), cf.ErrReserved)
		f, err := cf.Create(tx, "b", cf.Options{})
		require.NoError(t, err)
		require.NotEqual(t, base, f.Base, "tree numbers are never used again")
		require.Zero(t, tx.Rows(f.Data()))
	})
}

// TestDropTakesEveryTreeOfTheFamily: a tree that stays cannot be reached, and its pages leak.
func TestDropTakesEveryTreeOfTheFamily(t *testing.T) {
	s := open(t)
	var f *cf.Family
	update(t, s, func(tx *txn.Tx) {
		var err error
		f, err = cf.Create(tx, "a", cf.Options{})
		require.NoError(t, err)
		require.NoError(t, tx.Create(f.KeyIndex()))
		require.NoError(t, tx.Create(f.ExpiryIndex()))
	})
	update(t, s, func(tx *txn.Tx) {
		require.NoError(t, cf.Drop(tx, "a"))
		for _, id := range []txn.TreeID{f.Data(), f.KeyIndex(), f.ExpiryIndex()} {
			require.False(t, tx.Exists(id), "%s", f.Role(id))
		}
	})
}

func TestRolledBackFamilyIsNotThere(t *testing.T) {
	s := open(t)
	tx, err := s.Begin(t.Context(), true)
	require.NoError(t, err)
	_, err = cf.Create(tx, "a", cf.Options{})
	require.NoError(t, err)
	tx.Rollback()
	view(t, s, func(tx *txn.Tx) { require.Empty(t, names(t, tx)) })
}

func TestCacheAnswersAsTheCatalogOfEachSnapshot(t *testing.T) {
	s := open(t)
	var cache cf.Names
	update(t, s, func(tx *txn.Tx) {
		_, err := cf.Create(tx, "a", cf.Options{})
		require.NoError(t, err)
	})
	old, err := s.Begin(t.Context(), false)
	require.NoError(t, err)
	defer old.Rollback()
	a, err := cache.Lookup(old, "a")
	require.NoError(t, err)
	update(t, s, func(tx *txn.Tx) {
		require.NoError(t, cf.Drop(tx, "a"))
		_, err := cf.Create(tx, "a", cf.Options{})
		require.NoError(t, err)
	})
	for range 3 {
		view(t, s, func(tx *txn.Tx) {
			f, err := cache.Lookup(tx, "a")
			require.NoError(t, err)
			require.NotEqual(t, a.Base, f.Base)
			_, err = cache.Lookup(tx, "b")
			require.ErrorIs(t, err, cf.ErrNotFound)
		})
		again, err := cache.Lookup(old, "a")
		require.NoError(t, err)
		require.Equal(t, a.Base, again.Base)
	}
}

// TestCacheKnowsTheSettingsOfEachSnapshot, also those of the default family, which has a place of
// its own.
func TestCacheKnowsTheSettingsOfEachSnapshot(t *testing.T) {
	for _, name := range []string{"a", cf.Default} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			var cache cf.Names
			ttl := func(tx *txn.Tx) int64 {
				f, err := cache.Lookup(tx, name)
				require.NoError(t, err)
				require.Equal(t, name, f.Name)
				return f.Options.DefaultTTLMs
			}
			update(t, s, func(tx *txn.Tx) {
				_, err := cf.Create(tx, name, cf.Options{DefaultTTLMs: 1})
				require.NoError(t, err)
			})
			old, err := s.Begin(t.Context(), false)
			require.NoError(t, err)
			defer old.Rollback()
			require.EqualValues(t, 1, ttl(old))
			update(t, s, func(tx *txn.Tx) {
				require.NoError(t,
					cf.Alter(tx, name, cf.Options{DefaultTTLMs: 2}))
			})
			for range 2 {
				view(t, s, func(tx *txn.Tx) {
					require.EqualValues(t, 2, ttl(tx))
					require.EqualValues(t, 2, ttl(tx))
					require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = cache.Lookup(tx, name) }))
				})
				require.EqualValues(t, 1, ttl(old))
			}
		})
	}
}

// TestTenThousandFamilies creates them in a few transactions, asks for each through the cache from
// several goroutines, and lists them in order.
func TestTenThousandFamilies(t *testing.T) {
	const n = 10_000
	s := open(t)
	want := make([]string, n)
	for i := range want {
		want[i] = fmt.Sprintf("family-%05d", i)
	}
	for part := range slices.Chunk(want, n/4) {
		update(t, s, func(tx *txn.Tx) {
			for _, name := range part {
				_, err := cf.Create(tx, name, cf.Options{})
				require.NoError(t, err)
			}
		})
	}
	var cache cf.Names
	view(t, s, func(tx *txn.Tx) { require.Equal(t, want, names(t, tx)) })
	var wg sync.WaitGroup
	for g := range 2 {
		tx, err := s.Begin(t.Context(), false)
		require.NoError(t, err)
		wg.Go(func() {
			defer tx.Rollback()
			for range 2 {
				for i := range want {
					name := want[(i*7+g)%n]
					if f, err := cache.Lookup(tx, name); err != nil || f.Name != name {
						t.Errorf("Lookup(%q) = %v, %v", name, f, err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	view(t, s, func(tx *txn.Tx) {
		require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = cache.Lookup(tx, want[77]) }))
	})
}

// TestTreesOfNoFamilyAreFound, few or many of them, unless an entry cannot be read that may be
// theirs. No transaction is told of trees that were dropped.
func TestTreesOfNoFamilyAreFound(t *testing.T) {
	for _, n := range []int{1, 40} {
		s, err := txn.Open("test.ebb", txn.Options{FS: vfs.NewMemory()})
		require.NoError(t, err)
		found := func(most int) (all []string) {
			view(t, s, func(tx *txn.Tx) {
				cf.Check(tx, func(family string, err error) bool {
					all = append(all, family+": "+err.Error())
					return len(all) < most
				})
			})
			return all
		}
		update(t, s, func(tx *txn.Tx) {
			_, err := cf.Create(tx, "a", cf.Options{})
			require.NoError(t, err)
			for i := range n {
				require.NoError(t, tx.Create(txn.TreeID(1000+i)))
				_, err = tx.Put(txn.TreeID(1000+i), []byte("k"), []byte("v"), 0)
				require.NoError(t, err)
			}
		})
		require.Len(t, found(100), n)
		require.Contains(t, found(1)[0], "tree 1000 belongs to no family")
		update(t, s, func(tx *txn.Tx) {
			require.NoError(t, tx.Drop(1000))
			require.Len(t, tx.Trees(), n+1)
		})
		require.Len(t, found(100), n-1)
		update(t, s, func(tx *txn.Tx) {
			_, err := tx.Put(txn.CatalogTree, []byte("b"), []byte("nonsense"), 0)
			require.NoError(t, err)
		})
		require.Len(t, found(100), 1, "what cannot be read may be the owner")
		tx, err := s.Begin(t.Context(), false)
		require.NoError(t, err)
		tx.Rollback()
		require.Empty(t, tx.Trees())
		require.NoError(t, s.Close())
	}
}
