package kv_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
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

// TestWalksBesideChanges moves cursors about in a write transaction while it changes rows under
// them, by keys and values that are slices of the store's own, goes back to savepoints, and drops
// and renames the family. Each cursor keeps its place by key, and each slice its bytes.
func TestWalksBesideChanges(t *testing.T) {
	rounds := 60
	if racetest.Enabled || testing.Short() {
		rounds = 6
	}
	for _, real := range []bool{false, true} {
		t.Run(fmt.Sprint("mapped=", real), func(t *testing.T) {
			fsys, at := vfs.FS(vfs.NewMemory()), path
			if real {
				fsys, at = vfs.OS, filepath.Join(t.TempDir(), "a.ebb")
			}
			clock := newClock()
			db, err := openfs.Open(fsys, at,
				&kv.Options{Durability: kv.NoSync, Clock: clock.now, CacheBytes: 1 << 20},
				txn.Options{})
			require.NoError(t, err)
			w := &walks{t: t, rnd: seeded(t, 77), db: db, clock: clock, rows: map[string]modelRow{}}
			for range rounds {
				w.transaction()
				clock.move(time.Duration(w.rnd.IntN(20)) * time.Second)
				if w.rnd.IntN(3) == 0 {
					require.NoError(t, db.Checkpoint(t.Context()))
				}
			}
			checkStore(t, db)
			require.NoError(t, db.Close())
		})
	}
}

// walks is a store, its model, and the cursors of the transaction under way.
type walks struct {
	t     *testing.T
	rnd   *rand.Rand
	db    *kv.DB
	clock *testClock
	rows  map[string]modelRow

	tx      *kv.Tx
	now     int64
	walkers []*walker
	saves   []walkSave
	kept    []keptSlice
}

type walkSave struct {
	at   kv.Savepoint
	rows map[string]modelRow
}

// keptSlice is a value that the store has given away until the transaction ends, and what it held
// then.
type keptSlice struct {
	slice []byte
	want  string
}

// walker is a cursor and where it should be: on or beside a key, or off an end, or nowhere.
type walker struct {
	c      *kv.Cursor
	lo, hi string
	at     string // key; "" if it is nowhere or off an end
	end    int    // -1: before the first, 1: behind the last
	on     bool   // on a row
	key    []byte // what Key gave
	value  []byte // what Value gave, if asked
	want   string
}

func (w *walks) key() string {
	n := w.rnd.IntN(600)
	switch n % 7 {
	case 0:
		return fmt.Sprintf("%s%03d", strings.Repeat("long/", 60), n)
	case 1:
		return fmt.Sprintf("%0*d", 1024, n)
	}
	return fmt.Sprintf("k%03d", n)
}

func (w *walks) value() []byte {
	n := w.rnd.IntN(80)
	switch w.rnd.IntN(12) {
	case 0:
		n = w.rnd.IntN(1500)
	case 1:
		n = w.rnd.IntN(12_000)
	}
	return bytes.Repeat([]byte{byte('a' + w.rnd.IntN(26))}, n)
}

// live are the keys within bounds that are not expired, sorted.
func (w *walks) live(lo, hi string) (keys []string) {
	for k, row := range w.rows {
		if (row.expiry == 0 || w.now < row.expiry) && k >= lo && (hi == "" || k < hi) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

func (w *walks) transaction() {
	before := maps.Clone(w.rows)
	tx, err := w.db.Begin(w.t.Context(), true)
	require.NoError(w.t, err)
	w.tx, w.now, w.walkers, w.saves, w.kept = tx, tx.Now().UnixMilli(), nil, nil, nil
	// Only Count can show deletes by an eviction before the transaction.
	maps.DeleteFunc(w.rows, func(_ string,
		row modelRow) bool {
		return row.expiry != 0 && w.now >= row.expiry
	})
	for range 4 {
		o := kv.ScanOptions{}
		if w.rnd.IntN(2) == 0 {
			o.Lower = []byte(w.key())
		}
		if w.rnd.IntN(2) == 0 {
			o.Upper = []byte(w.key())
		}
		w.walkers = append(w.walkers, &walker{c: tx.CursorIn(o), lo: string(o.Lower), hi: string(o.Upper)})
	}
	for range 150 {
		w.change()
		for _, k := range w.walkers {
			w.stays(k)
			for range w.rnd.IntN(3) {
				w.move(k)
			}
		}
	}
	for _, k := range w.kept {
		require.True(w.t, string(k.slice) == k.want,
			"a value of Get has changed before the end of its transaction")
	}
	require.NoError(w.t, tx.Err())
	w.compare()
	if w.rnd.IntN(4) == 0 {
		require.NoError(w.t, tx.Rollback())
		w.rows = before
		return
	}
	require.NoError(w.t, tx.Commit())
}

func (w *walks) compare() {
	keys, i := w.live("", ""), 0
	for k, v := range w.tx.All() {
		require.True(w.t,
			i < len(keys) && keys[i] == string(k) && w.rows[keys[i]].value == string(v),
			"row %d: %.30q", i, k)
		i++
	}
	require.Equal(w.t, len(keys), i)
}

// place is a key to change, and a value for it: as often as not slices of the store's own.
func (w *walks) place() (key, value []byte) {
	key, value = []byte(w.key()), w.value()
	k := w.walkers[w.rnd.IntN(len(w.walkers))]
	if k.on && w.rnd.IntN(2) == 0 {
		key = k.c.Key()
	}
	switch w.rnd.IntN(4) {
	case 0:
		if got, err := w.tx.Get([]byte(w.key())); err == nil {
			w.kept = append(w.kept, keptSlice{got, string(got)})
			value = got
		}
	case 1:
		if k.on && k.value != nil {
			value = k.value
		}
	}
	return key, value
}

func (w *walks) change() {
	t, tx := w.t, w.tx
	key, value := w.place()
	name, row := string(key), modelRow{value: string(value)}
	_, there := w.rows[name]
	ttl := time.Duration(1+w.rnd.IntN(30)) * time.Second
	until := w.now + ttl.Milliseconds()
	switch p := w.rnd.IntN(100); {
	case p < 20:
		require.NoError(t, tx.Put(key, value))
		w.rows[name] = row
	case p < 45:
		require.NoError(t, tx.PutTTL(key, value, ttl))
		row.expiry = until
		w.rows[name] = row
	case p < 55:
		err := tx.Expire(key, ttl)
		if !there {
			require.ErrorIs(t, err, kv.ErrNotFound)
			return
		}
		require.NoError(t, err)
		w.rows[name] = modelRow{w.rows[name].value, until}
	case p < 62:
		err := tx.Persist(key)
		if !there {
			require.ErrorIs(t, err, kv.ErrNotFound)
			return
		}
		require.NoError(t, err)
		w.rows[name] = modelRow{w.rows[name].value, 0}
	case p < 78:
		require.NoError(t, tx.Delete(key))
		delete(w.rows, name)
	case p < 82:
		hi := name + "5"
		if w.rnd.IntN(6) == 0 {
			hi = w.key()
		}
		require.NoError(t, tx.DeleteRange(key, []byte(hi)))
		maps.DeleteFunc(w.rows, func(k string, _ modelRow) bool { return k >= name && k < hi })
	case p < 83:
		require.NoError(t, tx.Clear())
		clear(w.rows)
	case p < 90:
		if len(w.saves) < 5 {
			w.saves = append(w.saves, walkSave{tx.Savepoint(), maps.Clone(w.rows)})
		}
	case p < 94:
		if n := len(w.saves); n > 0 {
			i := w.rnd.IntN(n)
			require.NoError(t, tx.RollbackTo(w.saves[i].at))
			w.rows, w.saves = maps.Clone(w.saves[i].rows), w.saves[:i+1]
		}
	default:
		k := w.walkers[w.rnd.IntN(len(w.walkers))]
		w.stays(k)
		if k.on {
			require.NoError(t, k.c.Delete())
			delete(w.rows, k.at)
			k.on, k.key, k.value = false, nil, nil
		}
	}
}

// stays requires that nothing but a move moves a cursor, and that its slices hold what they held.
func (w *walks) stays(k *walker) {
	require.Equal(w.t, k.on, k.c.Valid())
	if !k.on {
		require.Nil(w.t, k.c.Key())
		return
	}
	require.True(w.t, string(k.c.Key()) == k.at, "the cursor was at %.30q and is at %.30q", k.at, k.c.Key())
	require.True(w.t, string(k.key) == k.at, "a key has changed before the cursor has moved")
	if k.value != nil {
		require.True(w.t, string(k.value) == k.want, "a value has changed before the cursor has moved")
	}
}

func (w *walks) move(k *walker) {
	keys := w.live(k.lo, k.hi)
	below := func(key string) int { // how many keys are below it
		i, _ := slices.BinarySearch(keys, key)
		return i
	}
	var i int
	var ok bool
	p := w.rnd.IntN(20)
	switch {
	case p == 0:
		i, ok = 0, k.c.First()
	case p == 1:
		i, ok = len(keys)-1, k.c.Last()
	case p == 2:
		key := w.key()
		i, ok = below(key), k.c.Seek([]byte(key))
	case p == 3:
		key := w.key()
		i, ok = below(key)-1, k.c.SeekBefore([]byte(key))
	case p < 12:
		switch i = below(k.at); {
		case k.end == 1:
			i = len(keys)
		case k.at != "" && i < len(keys) && keys[i] == k.at:
			i++
		}
		ok = k.c.Next()
	default:
		switch {
		case k.end == -1:
			i = -1
		case k.at == "":
			i = len(keys) - 1
		default:
			i = below(k.at) - 1
		}
		ok = k.c.Prev()
	}
	require.NoError(w.t, k.c.Err())
	require.Equal(w.t, i >= 0 && i < len(keys), ok, "move %d from %.30q/%d to %d of %d", p, k.at,
		k.end, i, len(keys))
	k.at, k.end, k.on, k.key, k.value = "", 0, ok, nil, nil
	switch {
	case i < 0:
		k.end = -1
	case i >= len(keys):
		k.end = 1
	default:
		k.at, k.key = keys[i], k.c.Key()
		require.True(w.t, string(k.key) == k.at, "move %d: at %.30q, want %.30q", p, k.key, k.at)
		expiry := w.rows[k.at].expiry
		at, timed := k.c.Expiry()
		require.Equal(w.t, expiry != 0, timed)
		require.True(w.t, !timed || at.UnixMilli() == expiry)
		if w.rnd.IntN(2) == 0 {
			k.value, k.want = k.c.Value(), w.rows[k.at].value
			require.True(w.t, string(k.value) == k.want)
		}
	}
}
