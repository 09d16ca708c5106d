package kv_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

func TestFamiliesAreSeparateKeySpaces(t *testing.T) {
	db := openTest(t)
	require.NoError(t, db.CreateCF("a", kv.CFOptions{}))
	require.ErrorIs(t, db.CreateCF("a", kv.CFOptions{}), kv.ErrCFExists)
	require.ErrorIs(t, db.CreateCF("default", kv.CFOptions{}), kv.ErrCFExists)
	require.NoError(t, db.EnsureCF("a", kv.CFOptions{}))
	require.NoError(t, db.EnsureCF("b", kv.CFOptions{}))
	require.NoError(t, db.AlterCF("b", kv.CFOptions{}))
	require.ErrorIs(t, db.AlterCF("c", kv.CFOptions{}), kv.ErrCFNotFound)
	k := []byte("k")
	require.NoError(t, db.Put(k, []byte("0")))
	require.NoError(t, db.CF("a").Put(k, []byte("1")))
	require.NoError(t, db.CF("b").Put(k, []byte("2")))
	require.Equal(t, []string{"k=0"}, rows(t, db, "default"))
	require.Equal(t, []string{"k=1"}, rows(t, db, "a"))
	require.Equal(t, []string{"k=2"}, rows(t, db, "b"))
	names, err := db.ListCFs()
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "default"}, names)
	require.Equal(t, int64(1), db.Stats().Families["b"].Rows)
}

// TestOptionsOfAFamilyAreCheckedFirst, whether or not the family exists.
func TestOptionsOfAFamilyAreCheckedFirst(t *testing.T) {
	db := openTest(t)
	bad := kv.CFOptions{DefaultTTL: -1}
	for _, name := range []string{"default", "absent"} {
		require.ErrorIs(t, db.EnsureCF(name, bad), kv.ErrInvalidTTL)
		require.ErrorIs(t, db.CreateCF(name, bad), kv.ErrInvalidTTL)
		require.ErrorIs(t, db.AlterCF(name, bad), kv.ErrInvalidTTL)
		require.NoError(t, db.Update(func(tx *kv.Tx) error {
			require.ErrorIs(t, tx.EnsureCF(name, bad), kv.ErrInvalidTTL)
			require.ErrorIs(t, tx.CreateCF(name, bad), kv.ErrInvalidTTL)
			require.ErrorIs(t, tx.AlterCF(name, bad), kv.ErrInvalidTTL)
			return nil
		}))
	}
}

func TestFamilyIsFoundByNameAtEachCall(t *testing.T) {
	db := openTest(t)
	family, k := db.CF("a"), []byte("k")
	require.ErrorIs(t, family.Put(k, nil), kv.ErrCFNotFound)
	require.NoError(t, db.CreateCF("a", kv.CFOptions{}))
	require.NoError(t, family.Put(k, nil))
	require.NoError(t, db.RenameCF("a", "b"))
	_, err := family.Get(k)
	require.ErrorIs(t, err, kv.ErrCFNotFound)
	require.NoError(t, db.CreateCF("a", kv.CFOptions{}))
	found, err := family.Has(k)
	require.NoError(t, err)
	require.False(t, found, "another family of that name")
	require.NoError(t, db.DropCF("a"))
	_, err = family.Count()
	require.ErrorIs(t, err, kv.ErrCFNotFound)
}

// TestHandleFollowsItsFamily: within a transaction a handle stays bound to the family that it found,
// whatever its name.
func TestHandleFollowsItsFamily(t *testing.T) {
	db := openTest(t)
	k := []byte("k")
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		h := tx.CF("a")
		require.ErrorIs(t, h.Put(k, nil), kv.ErrCFNotFound)
		require.NoError(t, tx.CreateCF("a", kv.CFOptions{}))
		require.NoError(t, h.Put(k, []byte("1")), "it is there now")
		require.Same(t, h, tx.CF("a"))

		require.NoError(t, tx.RenameCF("a", "b"))
		require.NoError(t, tx.CreateCF("a", kv.CFOptions{}))
		value, err := h.Get(k)
		require.NoError(t, err)
		require.Equal(t, "1", string(value), "the family, not the name")
		n, err := tx.CF("b").Count()
		require.NoError(t, err)
		require.Equal(t, int64(1), n)

		require.NoError(t, tx.DropCF("b"))
		_, err = h.Get(k)
		require.ErrorIs(t, err, kv.ErrCFDropped)
		_, err = h.Get(nil)
		require.ErrorIs(t, err, kv.ErrCFDropped)
		require.NoError(t, tx.CreateCF("b", kv.CFOptions{}), "the name is free at once")
		_, err = h.Get(k)
		require.ErrorIs(t, err, kv.ErrCFDropped)
		fresh := tx.CF("b")
		require.NotSame(t, h, fresh)
		return fresh.Put(k, []byte("2"))
	}))
	require.Equal(t, []string{"k=2"}, rows(t, db, "b"))
	require.Empty(t, rows(t, db, "a"))
}

// TestNewHandleAfterRename: for new handles the old name of a renamed family is another family, or
// none.
func TestNewHandleAfterRename(t *testing.T) {
	db := openTest(t)
	require.NoError(t, db.CreateCF("a", kv.CFOptions{}))
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		old := tx.CF("a")
		require.NoError(t, old.Put([]byte("k"), nil))
		require.NoError(t, tx.RenameCF("a", "b"))
		_, err := tx.CF("a").Count()
		require.ErrorIs(t, err, kv.ErrCFNotFound)
		require.NoError(t, tx.CreateCF("a", kv.CFOptions{}))
		n, err := tx.CF("a").Count()
		require.NoError(t, err)
		require.Zero(t, n)
		n, err = old.Count()
		require.NoError(t, err)
		require.Equal(t, int64(1), n)
		return nil
	}))
}

func TestDroppedFamilyComesBackWithARollback(t *testing.T) {
	db := openTest(t)
	require.NoError(t, db.CreateCF("a", kv.CFOptions{}))
	require.NoError(t, db.CF("a").Put([]byte("k"), []byte("v")))
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		h := tx.CF("a")
		save := tx.Savepoint()
		require.NoError(t, tx.DropCF("a"))
		_, err := h.Count()
		require.NoError(t, errIs(err, kv.ErrCFNotFound, kv.ErrCFDropped))
		require.NoError(t, tx.RollbackTo(save))
		n, err := h.Count()
		require.NoError(t, err)
		require.Equal(t, int64(1), n)
		return nil
	}))
	require.Equal(t, []string{"k=v"}, rows(t, db, "a"))
}

func TestSnapshotKeepsItsFamilies(t *testing.T) {
	db := openTest(t)
	require.NoError(t, db.CreateCF("a", kv.CFOptions{}))
	require.NoError(t, db.CF("a").Put([]byte("k"), []byte("v")))
	old := beginTx(t, db, false)
	require.NoError(t, db.DropCF("a"))
	require.NoError(t, db.CreateCF("a", kv.CFOptions{}))
	require.Empty(t, rows(t, db, "a"))
	value, err := old.CF("a").Get([]byte("k"))
	require.NoError(t, err)
	require.Equal(t, "v", string(value))
	require.NoError(t, old.Rollback())
}

func TestFamilyNamesAreChecked(t *testing.T) {
	db := openTest(t)
	for name, want := range map[string]error{
		"": kv.ErrCFName, "a\x00": kv.ErrCFName, "\xff": kv.ErrCFName, strings.Repeat("x", 201): kv.ErrCFName,
		"__ttl_k__a": kv.ErrCFReserved,
	} {
		require.ErrorIs(t, db.CreateCF(name, kv.CFOptions{}), want)
		require.ErrorIs(t, db.EnsureCF(name, kv.CFOptions{}), want)
		require.ErrorIs(t, db.DropCF(name), want)
		require.ErrorIs(t, db.RenameCF("default", name), kv.ErrCFReserved)
		require.ErrorIs(t, db.RenameCF(name, "x"), want)
		require.ErrorIs(t, db.CF(name).Put([]byte("k"), nil), want)
	}
	require.ErrorIs(t, db.DropCF("default"), kv.ErrCFReserved)
	require.ErrorIs(t, db.DropCF("absent"), kv.ErrCFNotFound)
	require.ErrorIs(t, db.RenameCF("absent", "x"), kv.ErrCFNotFound)
	longest := strings.Repeat("ü", 100)
	require.NoError(t, db.CreateCF(longest, kv.CFOptions{}))
	require.NoError(t, db.CF(longest).Put([]byte("k"), nil))
}

func TestReadOnlyStoreWithoutDefaultFamilyIsEmpty(t *testing.T) {
	fsys := vfs.NewMemory()
	bare(t, fsys)
	db := openOn(t, fsys, &kv.Options{ReadOnly: true})
	_, err := db.Get([]byte("k"))
	require.ErrorIs(t, err, kv.ErrNotFound)
	n, err := db.Count()
	require.NoError(t, err)
	require.Zero(t, n)
	names, err := db.ListCFs()
	require.NoError(t, err)
	require.Equal(t, []string{"default"}, names)
	require.Empty(t, rows(t, db, "default"))
	require.NoError(t, db.Close())

	db = openOn(t, fsys, nil)
	require.NoError(t, db.Put([]byte("k"), nil), "opened for writing, it gets its family")
}

// TestTenThousandFamiliesInOneStore fills each of them, over a reopen.
func TestTenThousandFamiliesInOneStore(t *testing.T) {
	racetest.OneGoroutine(t)
	n := racetest.Sample(10_000, 2_000)
	fsys := vfs.NewMemory()
	db := openOn(t, fsys, quick)
	name := func(i int) string { return fmt.Sprintf("f%05d", i) }
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		for i := range n {
			if err := tx.CreateCF(name(i), kv.CFOptions{}); err != nil {
				return err
			}
			if err := tx.CF(name(i)).Put([]byte("k"), []byte(name(i))); err != nil {
				return err
			}
		}
		return nil
	}))
	require.NoError(t, db.CreateCF("one more", kv.CFOptions{}))
	require.NoError(t, db.Close())
	db = openOn(t, fsys, quick)
	names, err := db.ListCFs()
	require.NoError(t, err)
	require.Len(t, names, n+2)
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		for i := range n {
			value, err := tx.CF(name(i)).Get([]byte("k"))
			if err != nil || string(value) != name(i) {
				return fmt.Errorf("family %d: %q, %w", i, value, err)
			}
		}
		return nil
	}))
	require.Len(t, db.Stats().Families, n+2)
}

// errIs returns nil if err is one of want.
func errIs(err error, want ...error) error {
	for _, w := range want {
		if isErr(err, w) {
			return nil
		}
	}
	return fmt.Errorf("got %v, want one of %v", err, want)
}

// TestRefusedChangeOfTheCatalogChangesNothing: a family was dropped or renamed half-way when the
// transaction became too large between two steps. The transaction committed, and the family was lost.
func TestRefusedChangeOfTheCatalogChangesNothing(t *testing.T) {
	racetest.OneGoroutine(t)
	old, other := strings.Repeat("f", 150), strings.Repeat("g", 150)
	for name, change := range map[string]func(tx *kv.Tx) error{
		"create": func(tx *kv.Tx) error { return tx.CreateCF(other, kv.CFOptions{}) },
		"drop":   func(tx *kv.Tx) error { return tx.DropCF(old) },
		"rename": func(tx *kv.Tx) error { return tx.RenameCF(old, other) },
	} {
		t.Run(name, func(t *testing.T) {
			refused := 0
			for size := 700; size < 1100; size += racetest.Sample(7, 21) {
				disk := vfs.NewMemory()
				db := openOn(t, disk, &kv.Options{MaxTxnBytes: 1200})
				require.NoError(t, db.CreateCF(old, kv.CFOptions{}))
				require.NoError(t, db.CF(old).PutTTL([]byte("a"), []byte("b"), time.Hour))
				var err error
				require.NoError(t, db.Update(func(tx *kv.Tx) error {
					if err := tx.Put([]byte("k"), make([]byte, size)); err != nil {
						return err
					}
					before := kv.RawTx(tx).Bytes()
					if err = change(tx); err != nil {
						require.ErrorIs(t, err, kv.ErrTxnTooLarge)
						require.Equal(t, before, kv.RawTx(tx).Bytes())
					}
					return nil
				}))
				if err == nil {
					continue
				}
				refused++
				for range 2 { // the second time after all was opened again
					value, err := db.CF(old).Get([]byte("a"))
					require.NoError(t, err, "size %d", size)
					require.Equal(t, "b", string(value))
					names, err := db.ListCFs()
					require.NoError(t, err)
					require.Equal(t, []string{"default", old}, names)
					checkStore(t, db)
					require.NoError(t, db.Close())
					db = openOn(t, disk, nil)
				}
			}
			require.Greater(t, refused, 3)
		})
	}
}

// TestHandleThatWasNotUsedYet is bound to the family that had the name when CF was called, as a used
// one is.
func TestHandleThatWasNotUsedYet(t *testing.T) {
	for _, used := range []bool{true, false} {
		db := openTest(t)
		for _, name := range []string{"a", "b", "c"} {
			require.NoError(t, db.CreateCF(name, kv.CFOptions{}))
			require.NoError(t, db.CF(name).Put([]byte("k"), []byte(name)))
		}
		require.NoError(t, db.Update(func(tx *kv.Tx) error {
			a, b, c, later := tx.CF("a"), tx.CF("b"), tx.CF("c"), tx.CF("later")
			if used {
				for _, h := range []*kv.CF{a, b, c} {
					_, err := h.Get([]byte("k"))
					require.NoError(t, err)
				}
			}
			require.NoError(t, tx.DropCF("a"))
			_, err := a.Get([]byte("k"))
			require.ErrorIs(t, err, kv.ErrCFDropped, "used: %v", used)
			require.NoError(t, tx.DropCF("b"))
			require.NoError(t, tx.CreateCF("b", kv.CFOptions{}))
			require.ErrorIs(t, b.Put([]byte("k"), nil), kv.ErrCFDropped, "used: %v", used)
			require.NoError(t, tx.RenameCF("c", "d"))
			value, err := c.Get([]byte("k"))
			require.NoError(t, err, "used: %v", used)
			require.Equal(t, "c", string(value))
			require.ErrorIs(t, tx.DropCF("later"), kv.ErrCFNotFound)
			require.NoError(t, tx.CreateCF("later", kv.CFOptions{}))
			require.NoError(t, later.Put([]byte("k"), nil), "it had found nothing")
			return nil
		}))
	}
}

// TestNameThatIsTakenAgainIsNotTheRenamedFamily: a handle follows its family to another name; a new
// one is bound to its name.
func TestNameThatIsTakenAgainIsNotTheRenamedFamily(t *testing.T) {
	for _, ensure := range []bool{false, true} {
		db := openTest(t)
		require.NoError(t, db.Update(func(tx *kv.Tx) error {
			require.NoError(t, tx.CreateCF("a", kv.CFOptions{}))
			old := tx.CF("a")
			require.NoError(t, old.Put([]byte("old"), nil))
			require.NoError(t, tx.RenameCF("a", "b"))
			if ensure {
				require.NoError(t, old.Put([]byte("old"), nil), "it follows")
				require.NoError(t, tx.EnsureCF("a", kv.CFOptions{}))
			} else {
				require.NoError(t, tx.CreateCF("a", kv.CFOptions{}))
				require.NoError(t, old.Put([]byte("old"), nil), "it follows")
			}
			return tx.CF("a").Put([]byte("new"), nil)
		}))
		require.Equal(t, []string{"new="}, rows(t, db, "a"), "ensure: %v", ensure)
		require.Equal(t, []string{"old="}, rows(t, db, "b"), "ensure: %v", ensure)
	}
}

// TestCFOptionsAreWhatTheFamilyWasCreatedOrAlteredWith: no call returned the default ttl of a family;
// a program had to put a key and read its expiry.
func TestCFOptionsAreWhatTheFamilyWasCreatedOrAlteredWith(t *testing.T) {
	fsys := vfs.NewMemory()
	db := mustOpenOn(t, fsys, nil, txn.Options{})
	want := func(name string, ttl time.Duration) {
		t.Helper()
		o, err := db.CFOptions(name)
		require.NoError(t, err)
		require.Equal(t, kv.CFOptions{DefaultTTL: ttl}, o)
	}
	want("default", 0)
	require.NoError(t, db.CreateCF("s", kv.CFOptions{DefaultTTL: time.Hour}))
	want("s", time.Hour)
	require.NoError(t, db.EnsureCF("s", kv.CFOptions{DefaultTTL: time.Minute}))
	want("s", time.Hour)
	require.NoError(t, db.AlterCF("s", kv.CFOptions{DefaultTTL: 999100 * time.Microsecond}))
	want("s", time.Second)
	require.NoError(t, db.RenameCF("s", "r"))
	want("r", time.Second)
	_, err := db.CFOptions("s")
	require.ErrorIs(t, err, kv.ErrCFNotFound)

	require.ErrorIs(t, db.Update(func(tx *kv.Tx) error {
		save := tx.Savepoint()
		require.NoError(t, tx.AlterCF("r", kv.CFOptions{DefaultTTL: time.Minute}))
		o, err := tx.CFOptions("r")
		require.NoError(t, err)
		require.Equal(t, time.Minute, o.DefaultTTL, "a transaction sees its own change")
		want("r", time.Second)
		require.NoError(t, tx.RollbackTo(save))
		o, err = tx.CFOptions("r")
		require.NoError(t, err)
		require.Equal(t, time.Second, o.DefaultTTL)
		require.NoError(t, tx.DropCF("r"))
		_, err = tx.CFOptions("r")
		require.ErrorIs(t, err, kv.ErrCFNotFound)
		return errRolledBack
	}), errRolledBack)
	want("r", time.Second)

	require.NoError(t, db.AlterCF("r", kv.CFOptions{DefaultTTL: math.MaxInt64}))
	want("r", math.MaxInt64)
	require.NoError(t, db.Close())
	db = mustOpenOn(t, fsys, &kv.Options{ReadOnly: true}, txn.Options{})
	want("r", math.MaxInt64)
	want("default", 0)
	require.NoError(t, db.Close())
}
