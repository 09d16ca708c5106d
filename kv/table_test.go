package kv_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

type account struct {
	Name    string
	Balance int64
}

func TestATableStoresWhatItsCodecsEncode(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	db, err := kv.OpenMemory(&kv.Options{Clock: func() time.Time { return now }})
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.CreateCF("accounts", kv.CFOptions{}))
	for _, family := range []string{"accounts", "default"} {
		accounts := kv.NewTable(family, kv.Uint64, kv.JSON[account]())
		require.NoError(t, db.Update(func(tx *kv.Tx) error {
			require.NoError(t, accounts.Put(tx, 300, account{"C", 3}))
			require.NoError(t, accounts.Put(tx, 2, account{"B", 2}))
			require.NoError(t, accounts.Put(tx, 1, account{"A", 1}))
			require.NoError(t, accounts.PutTTL(tx, 4, account{"D", 4}, time.Minute))
			require.NoError(t, accounts.PutTTL(tx, 5, account{"E", 5}, time.Minute))
			require.NoError(t, accounts.Expire(tx, 5, time.Hour))
			require.ErrorIs(t, accounts.Expire(tx, 6, time.Hour), kv.ErrNotFound)
			return accounts.Delete(tx, 2)
		}))
		raw := db.CF(family)
		value, err := raw.Get([]byte("\x00\x00\x00\x00\x00\x00\x00\x01"))
		require.NoError(t, err)
		require.JSONEq(t, `{"Name":"A","Balance":1}`, string(value))

		now = now.Add(2 * time.Minute)
		require.NoError(t, db.View(func(tx *kv.Tx) error {
			got, err := accounts.Get(tx, 300)
			require.NoError(t, err)
			require.Equal(t, account{"C", 3}, got)
			for id, want := range map[uint64]bool{1: true, 2: false, 4: false, 5: true, 300: true} {
				has, err := accounts.Has(tx, id)
				require.NoError(t, err)
				require.Equal(t, want, has, id)
			}
			_, err = accounts.Get(tx, 4)
			require.ErrorIs(t, err, kv.ErrNotFound)
			var names string
			for id, a := range accounts.All(tx) {
				names += a.Name
				require.Equal(t, id == 300, a.Name == "C")
			}
			require.Equal(t, "AEC", names)
			return nil
		}))
	}
}

func TestATableRangesOverThePrefixOfAPair(t *testing.T) {
	db := openTest(t)
	keys := kv.Pair(kv.String, kv.Time)
	events := kv.NewTable("default", keys, kv.String)
	at := func(s int64) time.Time { return time.Unix(s, 0).UTC() }
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		for _, user := range []string{"al", "ali", "alice"} {
			for s := range int64(3) {
				key := kv.Tuple[string, time.Time]{First: user, Second: at(s)}
				require.NoError(t, events.Put(tx, key, user))
			}
		}
		prefix, err := keys.Prefix("ali")
		require.NoError(t, err)
		var n int64
		for key, value := range events.Prefix(tx, prefix) {
			require.Equal(t, kv.Tuple[string, time.Time]{First: "ali", Second: at(n)}, key)
			require.Equal(t, "ali", value)
			n++
			require.NoError(t, events.Delete(tx, key), "the body may delete")
		}
		require.EqualValues(t, 3, n)
		left, err := tx.Count()
		require.EqualValues(t, 6, left)
		return err
	}))
}

// refusing is a codec that encodes and decodes nothing.
type refusing struct{ err error }

func (r refusing) Append(dst []byte, _ string) ([]byte, error) { return dst, r.err }
func (r refusing) Decode([]byte) (string, error)               { return "", r.err }

func TestAnErrorOfACodecNamesFamilyAndKey(t *testing.T) {
	db := openTest(t)
	bad := errors.New("refused")
	values := kv.NewTable("default", kv.String, kv.Codec[string](refusing{bad}))
	keys := kv.NewTable("default", kv.Codec[string](refusing{bad}), kv.String)
	absent := kv.NewTable("nowhere", kv.String, kv.String)
	require.NoError(t, db.Put([]byte("k"), []byte("v")))
	err := db.Update(func(tx *kv.Tx) error {
		require.ErrorIs(t, keys.Put(tx, "k", "v"), bad)
		err := values.Put(tx, "k2", "v")
		require.ErrorIs(t, err, bad)
		require.ErrorContains(t, err, `"k2"`)
		_, err = values.Get(tx, "k")
		require.ErrorIs(t, err, bad)
		require.ErrorContains(t, err, `table "default": value of key "k"`)
		require.NoError(t, tx.Err(), "point calls leave the transaction as it was")
		require.ErrorIs(t, absent.Put(tx, "k", "v"), kv.ErrCFNotFound)
		for range values.All(tx) {
			require.Fail(t, "a row that cannot be decoded is not yielded")
		}
		return nil
	})
	require.ErrorIs(t, err, bad, "an error of a range is the transaction's")
}

// Story: a codec that reads the transaction in which it is called would overwrite the encoding that
// the outer call has begun, if both used one buffer.
func TestACodecMayUseTheTransaction(t *testing.T) {
	db := openTest(t)
	plain := kv.NewTable("default", kv.String, kv.String)
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		require.NoError(t, plain.Put(tx, "a", "1"))
		nested := kv.NewTable("default", kv.String, kv.Codec[string](nesting{tx, plain}))
		require.NoError(t, nested.Put(tx, "long key of the outer call", "a"))
		got, err := plain.Get(tx, "long key of the outer call")
		require.Equal(t, "1", got)
		return err
	}))
}

// nesting encodes the name of a row as its value.
type nesting struct {
	tx    *kv.Tx
	table kv.Table[string, string]
}

func (n nesting) Append(dst []byte, key string) ([]byte, error) {
	value, err := n.table.Get(n.tx, key)
	return append(dst, value...), err
}

func (n nesting) Decode(b []byte) (string, error) { return string(b), nil }

func TestATableAllocatesNothingForAKeyAndAValue(t *testing.T) {
	db := openTest(t)
	numbers := kv.NewTable("default", kv.Uint64, kv.Uint64)
	require.NoError(t, db.Update(func(tx *kv.Tx) error { return numbers.Put(tx, 7, 8) }))
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		allocs := testing.AllocsPerRun(100, func() {
			n, err := numbers.Get(tx, 7)
			if err != nil || n != 8 {
				t.Errorf("Get = %d, %v", n, err)
			}
		})
		require.Zero(t, allocs)
		return nil
	}))
}
