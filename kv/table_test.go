package kv_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"strings"
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

// keepsOrder holds a codec to its contract on all pairs of values: the encoding decodes to the value,
// and encodings compare as the values do.
func keepsOrder[T any](t *testing.T, c kv.Codec[T], compare func(a, b T) int, values ...T) {
	t.Helper()
	encoded := make([][]byte, len(values))
	for i, v := range values {
		b, err := c.Append([]byte("before"), v)
		require.NoError(t, err)
		require.True(t, bytes.HasPrefix(b, []byte("before")), "Append keeps dst")
		encoded[i] = b[len("before"):]
		back, err := c.Decode(encoded[i])
		require.NoError(t, err)
		require.Zero(t, compare(v, back), "Decode(% x) = %v, want %v", encoded[i], back, v)
	}
	for i, a := range values {
		for j, b := range values {
			require.Equal(t, compare(a, b), bytes.Compare(encoded[i], encoded[j]), "%v against %v", a, b)
		}
	}
}

func TestCodecsKeepTheOrderOfTheirValues(t *testing.T) {
	texts := []string{"", "\x00", "\x00\x00", "\x00\x01", "\x00\xff", "\x01", "a", "a\x00", "a\x00\x01",
		"a\x00b", "ab", "b", "\xff", "\xff\xff"}
	keepsOrder(t, kv.String, strings.Compare, texts...)
	var slices [][]byte
	for _, s := range texts {
		slices = append(slices, []byte(s))
	}
	keepsOrder(t, kv.Bytes, bytes.Compare, slices...)
	keepsOrder(t, kv.Uint64, cmp.Compare[uint64], 0, 1, 255, 256, math.MaxInt64, math.MaxUint64)
	keepsOrder(t, kv.Int64, cmp.Compare[int64], math.MinInt64, -256, -1, 0, 1, 255, math.MaxInt64)
	keepsOrder(t, kv.Time, time.Time.Compare, time.Time{}, time.Unix(-1, 999_999_999), time.Unix(0, 0),
		time.Unix(0, 1), time.Date(2026, 11, 29, 12, 0, 0, 0, time.FixedZone("", 3600)),
		time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC))

	var pairs []kv.Tuple[string, int64]
	for _, s := range texts {
		for _, n := range []int64{-1, 0, 1} {
			pairs = append(pairs, kv.Tuple[string, int64]{First: s, Second: n})
		}
	}
	byBoth := func(a, b kv.Tuple[string, int64]) int {
		return cmp.Or(strings.Compare(a.First, b.First), cmp.Compare(a.Second, b.Second))
	}
	keepsOrder(t, kv.Pair(kv.String, kv.Int64), byBoth, pairs...)

	type nested = kv.Tuple[kv.Tuple[string, int64], string]
	rnd := rand.New(rand.NewPCG(1, 2))
	var deep []nested
	for range 60 {
		deep = append(deep, nested{First: pairs[rnd.IntN(len(pairs))], Second: texts[rnd.IntN(len(texts))]})
	}
	keepsOrder(t, kv.Pair(kv.Pair(kv.String, kv.Int64), kv.String), func(a, b nested) int {
		return cmp.Or(byBoth(a.First, b.First), strings.Compare(a.Second, b.Second))
	}, deep...)
}

func TestAPairsPrefixIsOfExactlyTheKeysWithThatFirstPart(t *testing.T) {
	c := kv.Pair(kv.String, kv.String)
	prefix, err := c.Prefix("a\x00")
	require.NoError(t, err)
	for _, first := range []string{"", "a", "a\x00", "a\x00\x00", "a\x00\x01", "a\x00b", "b"} {
		b, err := c.Append(nil, kv.Tuple[string, string]{First: first, Second: "x"})
		require.NoError(t, err)
		require.Equal(t, first == "a\x00", bytes.HasPrefix(b, prefix), "%q", first)
	}
}

func TestCodecsRefuseBytesThatTheyDidNotWrite(t *testing.T) {
	pair, numbers := kv.Pair(kv.String, kv.Uint64), kv.Pair(kv.Int64, kv.String)
	refuses := func(name string, decode func(b []byte) error, inputs ...string) {
		for _, in := range inputs {
			require.Error(t, decode([]byte(in)), "%s of % x", name, in)
		}
	}
	refuses("Uint64", func(b []byte) error { _, err := kv.Uint64.Decode(b); return err }, "", "1234567",
		"123456789")
	refuses("Int64", func(b []byte) error { _, err := kv.Int64.Decode(b); return err }, "", "1234567")
	refuses("Time", func(b []byte) error { _, err := kv.Time.Decode(b); return err },
		"", "12345678901", "12345678\xff\xff\xff\xff")
	refuses("JSON", func(b []byte) error { _, err := kv.JSON[int]().Decode(b); return err }, "", "{", `"a"`)
	refuses("Pair", func(b []byte) error { _, err := pair.Decode(b); return err },
		"", "a", "a\x00", "a\x00\xff", "a\x00\x0212345678", "a\x00\x011234567")
	refuses("Pair of numbers", func(b []byte) error { _, err := numbers.Decode(b); return err }, "",
		"1234567")
}

// A table has keys and values of Go types. The keys here are pairs: all visits of a user are next to
// each other, oldest first.
func ExampleTable() {
	db, err := kv.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := db.EnsureCF("visits", kv.CFOptions{}); err != nil {
		log.Fatal(err)
	}

	type Visit struct{ Page string }
	type key = kv.Tuple[string, time.Time]
	keys := kv.Pair(kv.String, kv.Time)
	visits := kv.NewTable("visits", keys, kv.JSON[Visit]())

	noon := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	err = db.Update(func(tx *kv.Tx) error {
		for i, page := range []string{"/", "/prices", "/order"} {
			k := key{First: "ann", Second: noon.Add(time.Duration(i) * time.Minute)}
			if err := visits.PutTTL(tx, k, Visit{page}, 24*time.Hour); err != nil {
				return err
			}
		}
		return visits.PutTTL(tx, key{First: "bob", Second: noon}, Visit{"/"}, 24*time.Hour)
	})
	if err != nil {
		log.Fatal(err)
	}

	err = db.View(func(tx *kv.Tx) error {
		ofAnn, err := keys.Prefix("ann")
		if err != nil {
			return err
		}
		for k, visit := range visits.Prefix(tx, ofAnn) {
			fmt.Println(k.Second.Format(time.TimeOnly), visit.Page)
		}
		return nil // an error of the range is returned by View
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// 12:00:00 /
	// 12:01:00 /prices
	// 12:02:00 /order
}
