package kv_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// damagedStore has trees of three levels, values in extents, expiries, and a catalog of several
// pages.
func damagedStore(t *testing.T) (fsys vfs.FS, stored map[string]map[string]string) {
	t.Helper()
	fsys, stored = vfs.NewMemory(), map[string]map[string]string{}
	db := mustOpenOn(t, fsys, nil, txn.Options{})
	put := func(tx *kv.Tx, name, key, value string, ttl time.Duration) {
		if stored[name] == nil {
			stored[name] = map[string]string{}
			require.NoError(t, tx.EnsureCF(name, kv.CFOptions{}))
		}
		stored[name][key] = value
		_, err := tx.CF(name).PutWith([]byte(key), []byte(value), kv.PutOptions{TTL: ttl})
		require.NoError(t, err)
	}
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		long := strings.Repeat("l", 900)
		for i := range 70 { // Four rows a leaf, four children a branch.
			put(tx, "default", fmt.Sprintf("%03d%s", i, long), fmt.Sprint(i), 0)
		}
		for i := range 300 {
			put(tx, "timed", fmt.Sprintf("k%05d", i), strings.Repeat(fmt.Sprint(i), 10),
				time.Duration(i+1)*time.Hour)
		}
		for i := range 40 {
			put(tx, "large", fmt.Sprintf("k%05d", i), strings.Repeat(fmt.Sprint(i%10), 500+100*i), 0)
		}
		for i := range 100 {
			put(tx, fmt.Sprintf("family %03d", i), "k", fmt.Sprint(i), 0)
		}
		return nil
	}))
	require.NoError(t, db.Close())
	return fsys, stored
}

// flipByte changes a byte of the store's main file.
func flipByte(t *testing.T, fsys vfs.FS, off int64) {
	t.Helper()
	f, err := fsys.Open(path, vfs.Write)
	require.NoError(t, err)
	var b [1]byte
	require.NoError(t, vfs.ReadFull(f, b[:], off))
	b[0] ^= 0x40
	require.NoError(t, vfs.WriteFull(f, b[:], off))
	require.NoError(t, f.Close())
}

// TestDamageHidesOnlyWhatItHit: three bytes in a store of 300 rows were damaged, 299 of which Get
// found; ranges yielded 99 and ended. Every page of a store is damaged in turn: a range with OnDamage
// yields each readable row unchanged, and the rows that it reports as lost are the rest. Check reports
// the same places.
func TestDamageHidesOnlyWhatItHit(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	fsys, stored := damagedStore(t)
	info, err := fsys.Stat(path)
	require.NoError(t, err)
	seen := map[string]int{}
	for page := int64(0); page < info.Size/4096; page += int64(racetest.Sample(2, 3)) {
		flipByte(t, fsys, page*4096+1001)
		seen[damagedPage(t, fsys, stored, uint64(page))]++
		flipByte(t, fsys, page*4096+1001)
	}
	for _, what := range []string{"sound", "rows", "value", "families"} {
		require.NotZero(t, seen[what], "%v", seen)
	}
	require.LessOrEqual(t, seen["unopened"], 3, "%v", seen)
}

// damagedPage looks at a store of which one page is damaged, and tells what kind of damage it
// found.
func damagedPage(t *testing.T, fsys vfs.FS, stored map[string]map[string]string, page uint64) (what string) {
	t.Helper()
	db, err := openfs.Open(fsys, path, &kv.Options{ReadOnly: true}, txn.Options{})
	if err != nil {
		require.ErrorIs(t, err, kv.ErrCorrupt)
		return "unopened"
	}
	defer func() { require.NoError(t, db.Close()) }()
	checked := map[uint64]bool{}
	for p := range db.Check(t.Context()) {
		checked[p.Page] = true
	}
	what = "sound"
	places := func(d kv.Damage) {
		var bad *kv.CorruptError
		require.ErrorAs(t, d.Err, &bad)
		if d.Key == nil {
			require.Equal(t, page, bad.Pgid)
		}
		require.LessOrEqual(t, bad.Pgid, page, "a value is named by its first page")
		require.True(t, checked[bad.Pgid], "Check names page %d", bad.Pgid)
	}
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		var lost []kv.Damage
		tx.OnDamage(func(d kv.Damage) bool {
			places(d)
			lost = append(lost, d)
			what = "families"
			return true
		})
		names, err := tx.ListCFs()
		require.NoError(t, err)
		given := map[string]string{}
		all := map[string]string{}
		for name := range stored {
			all[name] = name
		}
		for _, name := range names {
			given[name] = name
		}
		require.Equal(t, slices.Sorted(maps.Keys(given)), names)
		accountFor(t, all, given, lost, true)
		for _, name := range names {
			if kind := damagedFamily(t, tx, name, stored[name], places); kind != "sound" {
				what = kind
			}
		}
		return nil
	}))
	return what
}

// damagedFamily ranges over a family in every way.
func damagedFamily(t *testing.T, tx *kv.Tx, name string, all map[string]string,
	places func(kv.Damage)) (what string) {
	t.Helper()
	var lost []kv.Damage
	tx.OnDamage(func(d kv.Damage) bool {
		require.Equal(t, name, d.Family)
		places(d)
		lost = append(lost, d)
		return true
	})
	keys := slices.Sorted(maps.Keys(all))
	for _, o := range []kv.ScanOptions{
		{}, {Reverse: true}, {KeysOnly: true}, {KeysOnly: true, Reverse: true},
		{Lower: []byte(keys[len(keys)/3]), Upper: []byte(keys[len(keys)*2/3])},
		{Lower: []byte(keys[len(keys)/3]), Upper: []byte(keys[len(keys)*2/3]), Reverse: true},
	} {
		within, given, order := map[string]string{}, map[string]string{}, []string(nil)
		for k, v := range all {
			if (o.Lower == nil || k >= string(o.Lower)) && (o.Upper == nil || k < string(o.Upper)) {
				within[k] = v
			}
		}
		lost = nil
		for k, v := range tx.CF(name).Scan(o) {
			order = append(order, string(k))
			if v == nil && !o.KeysOnly {
				require.Equal(t, k, lost[len(lost)-1].Key, "a value is nil only if it was said to be lost")
				continue
			}
			if given[string(k)] = string(v); o.KeysOnly {
				given[string(k)] = all[string(k)]
			}
		}
		require.NoError(t, tx.Err())
		if o.Reverse {
			slices.Reverse(order)
		}
		require.True(t, slices.IsSorted(order))
		accountFor(t, within, given, lost, o.Lower == nil)
	}
	if name == "default" {
		// Some stand at the edge of a page, behind which a range looks for its end.
		for _, key := range keys {
			for _, o := range []kv.ScanOptions{{Upper: []byte(key), KeysOnly: true},
				{Lower: []byte(key), KeysOnly: true, Reverse: true}} {
				lost = nil
				for range tx.CF(name).Scan(o) {
				}
				for _, d := range lost {
					require.True(t, o.Upper == nil || bytes.Compare(d.Lower, o.Upper) < 0,
						"told of what is behind the range")
					require.True(t,
						o.Lower == nil || d.Upper == nil || bytes.Compare(d.Upper, o.Lower) > 0,
						"told of what is before the range")
				}
			}
		}
	}
	cursorOverDamage(t, tx.CF(name), all, &lost)
	what = "sound"
	for _, d := range lost {
		if what = "rows"; d.Key != nil {
			what = "value"
		}
	}
	lost = nil
	given := map[string]string{}
	for k := range tx.CF(name).Expiring(time.Time{}) {
		given[string(k)] = all[string(k)]
	}
	n := int64(len(given))
	for _, d := range lost {
		n += d.Rows
	}
	if name == "timed" {
		require.EqualValues(t, len(all), n)
	}
	return what
}

// cursorOverDamage walks there and back.
func cursorOverDamage(t *testing.T, f *kv.CF, all map[string]string, lost *[]kv.Damage) {
	t.Helper()
	*lost = nil
	c, given := f.Cursor(), map[string]string{}
	for c.Next() {
		if v := c.Value(); v != nil {
			given[string(c.Key())] = string(v)
		}
		require.True(t, c.Valid(), "a lost value leaves the cursor on its row")
	}
	require.NoError(t, c.Err())
	accountFor(t, all, given, *lost, true)
	there := *lost
	*lost = nil
	back := map[string]string{}
	for c.Prev() {
		if v := c.Value(); v != nil {
			back[string(c.Key())] = string(v)
		}
	}
	require.NoError(t, c.Err())
	require.Equal(t, given, back)
	accountFor(t, all, back, *lost, true)
	require.Len(t, *lost, len(there))
	for key := range all {
		ok := c.Seek([]byte(key))
		require.NoError(t, c.Err())
		if _, there := given[key]; there {
			require.True(t, ok)
			require.Equal(t, key, string(c.Key()))
		}
		if c.SeekBefore([]byte(key)) {
			require.Less(t, string(c.Key()), key)
		}
		require.NoError(t, c.Err())
	}
	*lost = there
}

// accountFor requires that each row is given as it was stored, or said to be lost, and that no
// other one is given. whole says that the range had no bounds.
func accountFor(t *testing.T, all, given map[string]string, lost []kv.Damage, whole bool) {
	t.Helper()
	missing := int64(0)
	for key, value := range all {
		if got, ok := given[key]; ok {
			require.Equal(t, value, got)
			continue
		}
		missing++
		require.True(t, slices.ContainsFunc(lost, func(d kv.Damage) bool {
			return bytes.Compare([]byte(key), d.Lower) >= 0 &&
				(d.Upper == nil || bytes.Compare([]byte(key), d.Upper) < 0)
		}), "row %.10q is neither given nor said to be lost: %+v", key, lost)
	}
	require.Len(t, given, len(all)-int(missing), "no row is invented")
	said := int64(0)
	for _, d := range lost {
		said += d.Rows
	}
	require.GreaterOrEqual(t, said, missing)
	if whole {
		require.Equal(t, missing, said, "the rows given and those that are lost are what is stored")
	}
}

// TestDamageEndsARangeThatIsNotToldOfIt, one whose OnDamage returns false, and every range of a write
// transaction.
func TestDamageEndsARangeThatIsNotToldOfIt(t *testing.T) {
	racetest.OneGoroutine(t)
	fsys, stored := damagedStore(t)
	info, err := fsys.Stat(path)
	require.NoError(t, err)
	ended := 0
	for page := int64(2); page < info.Size/4096; page += 7 {
		flipByte(t, fsys, page*4096+1001)
		if damagedPage(t, fsys, stored, uint64(page)) == "rows" {
			ended += damageThatEnds(t, fsys)
		}
		flipByte(t, fsys, page*4096+1001)
	}
	require.NotZero(t, ended)
}

// damageThatEnds gives 1 if a range over the family "default" met damage.
func damageThatEnds(t *testing.T, fsys vfs.FS) int {
	db := mustOpenOn(t, fsys, nil, txn.Options{})
	defer func() { require.NoError(t, db.Close()) }()
	told := 0
	stop := func(kv.Damage) bool { told++; return false }
	walk := func(tx *kv.Tx) (n int) {
		for range tx.All() {
			n++
		}
		return n
	}
	before := -1
	err := db.View(func(tx *kv.Tx) error { before = walk(tx); return nil })
	if err == nil {
		return 0
	}
	require.ErrorIs(t, err, kv.ErrCorrupt)
	require.ErrorIs(t, db.View(func(tx *kv.Tx) error {
		tx.OnDamage(stop)
		require.Equal(t, before, walk(tx))
		return nil
	}), kv.ErrCorrupt)
	require.Equal(t, 1, told)
	require.ErrorIs(t, db.Update(func(tx *kv.Tx) error {
		tx.OnDamage(func(kv.Damage) bool { panic("in a write transaction") })
		require.Equal(t, before, walk(tx))
		return nil
	}), kv.ErrCorrupt)
	return 1
}

// badSectors is a file system that cannot read one page of the store.
type badSectors struct {
	vfs.FS
	page int64
}

type badSectorFile struct {
	vfs.File
	page int64
}

func (b badSectors) Open(name string, flag vfs.Flag) (vfs.File, error) {
	f, err := b.FS.Open(name, flag)
	if err != nil || name != path {
		return f, err
	}
	return badSectorFile{f, b.page}, nil
}

func (f badSectorFile) ReadAt(p []byte, off int64) (int, error) {
	if off < (f.page+1)*4096 && off+int64(len(p)) > f.page*4096 {
		return 0, vfs.ErrIO
	}
	return f.File.ReadAt(p, off)
}

// TestSectorsThatCannotBeReadHideOnlyTheirRows: an I/O error is no damage of the store, and hides only
// the rows of its page.
func TestSectorsThatCannotBeReadHideOnlyTheirRows(t *testing.T) {
	racetest.OneGoroutine(t)
	fsys, stored := damagedStore(t)
	info, err := fsys.Stat(path)
	require.NoError(t, err)
	hit := 0
	for page := int64(2); page < info.Size/4096; page += 5 {
		db, err := openfs.Open(badSectors{fsys, page}, path, &kv.Options{ReadOnly: true}, txn.Options{})
		if err != nil {
			require.ErrorIs(t, err, vfs.ErrIO)
			continue
		}
		if _, err := db.ListCFs(); err != nil { // without the catalog there is no family
			require.ErrorIs(t, err, vfs.ErrIO)
			require.NoError(t, db.Close())
			continue
		}
		require.NoError(t, db.View(func(tx *kv.Tx) error {
			for _, name := range []string{"default", "timed", "large"} {
				damagedFamily(t, tx, name, stored[name], func(d kv.Damage) {
					require.ErrorIs(t, d.Err, vfs.ErrIO)
					require.NotErrorIs(t, d.Err, kv.ErrCorrupt)
					hit++
				})
			}
			return nil
		}))
		require.NoError(t, db.Close())
	}
	require.NotZero(t, hit)
}
