package server

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

// steps runs lines and compares replies. A line "+ 1500ms" advances the clock.
func steps(t *testing.T, c *client, clock *fakeClock, lines ...[2]string) {
	t.Helper()
	for _, l := range lines {
		if l[0] == "+" {
			d, err := time.ParseDuration(l[1])
			require.NoError(t, err)
			clock.advance(d)
			continue
		}
		require.Equal(t, l[1], c.line(l[0]), l[0])
	}
}

func TestExpiredKeysAreInvisibleToEveryCommand(t *testing.T) {
	clock := newClock()
	c := start(t, Options{Clock: clock.now}).client()
	steps(t, c, clock, [][2]string{
		{
			"SET s v PX 1000",
			"OK",
		}, {"HSET h f v", "1"}, {"PEXPIRE h 1000", "1"}, {"SET stays v", "OK"},
		{
			"PTTL s",
			"1000",
		}, {"TTL s", "1"}, {"PEXPIRETIME s", "1800000001400"}, {"EXPIRETIME s", "1800000001"},
		{"+", "999ms"},
		{"PTTL s", "1"}, {"TTL s", "0"}, {"DBSIZE", "3"}, {"HGET h f", `"v"`},
		{"+", "1ms"},
		{
			"GET s",
			"nil",
		}, {"HGET h f", "nil"}, {"HLEN h", "0"}, {"EXISTS s h", "0"}, {"TYPE s", "none"},
		{"TYPE h", "none"}, {"DBSIZE", "1"}, {"KEYS *", `["stays"]`}, {"SCAN 0", `["0" ["stays"]]`},
		{"RANDOMKEY", `"stays"`}, {"TTL s", "-2"}, {"OBJECT ENCODING h", "nil"}, {"PERSIST s", "0"},
		{
			"EXPIRE s 10",
			"0",
		}, {"RENAME h x", "(error) ERR no such key"}, {"DEL s h", "0"}, {"DUMP s", "nil"},
		{"SET s new KEEPTTL", "OK"}, {"TTL s", "-1"}, {"LPOP h", "nil"},
	}...)
}

func TestConditionsOfExpire(t *testing.T) {
	clock := newClock()
	c := start(t, Options{Clock: clock.now}).client()
	steps(t, c, clock, [][2]string{
		{
			"SET k v",
			"OK",
		}, {"EXPIRE k 100 XX", "0"}, {"EXPIRE k 100 GT", "0"}, {"EXPIRE k 100 LT", "1"},
		{
			"EXPIRE k 50 GT",
			"0",
		}, {"EXPIRE k 200 GT", "1"}, {"EXPIRE k 300 LT", "0"}, {"EXPIRE k 10 NX", "0"},
		{
			"EXPIRE k 10 XX",
			"1",
		}, {"TTL k", "10"}, {"PERSIST k", "1"}, {"EXPIRE k 20 NX", "1"}, {"TTL k", "20"},
		{"GETEX k PERSIST", `"v"`}, {"TTL k", "-1"}, {"GETEX k EX 7", `"v"`}, {"TTL k", "7"},
		{"EXPIRE k -1", "1"}, {"EXISTS k", "0"},
		{"SET k v EX 5", "OK"}, {"SET k w", "OK"}, {"TTL k", "-1"},
	}...)
}

func TestFieldsOfHashesExpire(t *testing.T) {
	clock := newClock()
	c := start(t, Options{Clock: clock.now}).client()
	steps(t, c, clock, [][2]string{
		{"HSET h a 1 b 2 c 3", "3"},
		{"HEXPIRE h 10 FIELDS 2 a nosuch", "[1 -2]"}, {"HEXPIRE none 10 FIELDS 1 a", "[-2]"},
		{"HPEXPIRE h 500 FIELDS 1 b", "[1]"}, {"HTTL h FIELDS 3 a b c", "[10 1 -1]"},
		{"HPTTL h FIELDS 2 a b", "[10000 500]"}, {"HPEXPIRETIME h FIELDS 1 b", "[1800000000900]"},
		{"HEXPIRE h 5 NX FIELDS 2 a c", "[0 1]"}, {"HEXPIRE h 20 GT FIELDS 2 a c", "[1 1]"},
		{"HEXPIRE h 30 LT FIELDS 1 a", "[0]"}, {"HEXPIRE h 0 FIELDS 1 c", "[2]"}, {"HLEN h", "2"},
		{"+", "500ms"},
		{"HLEN h", "1"}, {"HGET h b", "nil"}, {"HKEYS h", `["a"]`}, {"HGETALL h", `["a" "1"]`},
		{"HEXISTS h b", "0"}, {"HSETNX h b again", "1"}, {"HTTL h FIELDS 1 b", "[-1]"},
		{
			"HINCRBY h a 5",
			"6",
		}, {"HPTTL h FIELDS 1 a", "[19500]"}, {"HINCRBYFLOAT h a 0.5", `"6.5"`},
		{"HPTTL h FIELDS 1 a", "[19500]"}, {"HSET h a x", "0"}, {"HTTL h FIELDS 1 a", "[-1]"},
		{"HPERSIST h FIELDS 2 a nosuch", "[-1 -2]"},
		{"HGETEX h EX 3 FIELDS 2 a nosuch", `["x" nil]`}, {"HTTL h FIELDS 1 a", "[3]"},
		{"HPERSIST h FIELDS 1 a", "[1]"}, {"HGETEX h PX 1 FIELDS 1 a", `["x"]`},
		{"HGETEX h PERSIST FIELDS 1 a", `["x"]`}, {"HTTL h FIELDS 1 a", "[-1]"},
		{"HGETDEL h FIELDS 2 a b", `["x" "again"]`}, {"EXISTS h", "0"},
		{"HSETEX h EX 10 FIELDS 2 a 1 b 2", "1"}, {"HSETEX h FNX FIELDS 1 a 3", "0"},
		{
			"HSETEX h FXX KEEPTTL FIELDS 1 a 3",
			"1",
		}, {"HTTL h FIELDS 1 a", "[10]"}, {"HSETEX h FXX FIELDS 1 n 3", "0"},
		{"HEXPIRE h 10 a", "(error) ERR wrong number of arguments for 'hexpire' command"},
		{
			"HEXPIRE h 10 FIELDS 2 a",
			"(error) ERR The `numfields` parameter must match the number of arguments",
		},
		{
			"HEXPIRE h 10 NX XX 1 a",
			"(error) ERR Mandatory argument FIELDS is missing or not at the right position",
		},
	}...)
}

// TestKeyEndsWithItsLastField: no command sees a hash without fields.
func TestKeyEndsWithItsLastField(t *testing.T) {
	clock := newClock()
	c := start(t, Options{Clock: clock.now}).client()
	steps(t, c, clock, [][2]string{
		{
			"HSET h a 1 b 2",
			"2",
		}, {"HPEXPIRE h 100 FIELDS 1 a", "[1]"}, {"HPEXPIRE h 200 FIELDS 1 b", "[1]"},
		{"TTL h", "-1"}, {"DBSIZE", "1"},
		{"+", "199ms"}, {"EXISTS h", "1"}, {"HLEN h", "1"},
		{
			"+",
			"1ms",
		}, {"EXISTS h", "0"}, {"DBSIZE", "0"}, {"KEYS *", "[]"}, {"TYPE h", "none"}, {"RANDOMKEY", "nil"},
		// The latest field goes before its time: the key ends with the other one.
		{
			"HSETEX h PX 100 FIELDS 1 a 1",
			"1",
		}, {"HSETEX h PX 900 FIELDS 1 b 1", "1"}, {"HDEL h b", "1"},
		{"+", "100ms"}, {"EXISTS h", "0"}, {"DBSIZE", "0"},
		// A shorter expiry of the latest field counts, too.
		{
			"HSETEX h PX 100 FIELDS 1 a 1",
			"1",
		}, {"HSETEX h PX 900 FIELDS 1 b 1", "1"}, {"HPEXPIRE h 50 FIELDS 1 b", "[1]"},
		{"+", "100ms"}, {"EXISTS h", "0"},
		// The expiry of the key and those of its fields do not replace each other.
		{
			"HSET h a 1 b 2",
			"2",
		}, {"PEXPIRE h 1000", "1"}, {"HPEXPIRE h 100 FIELDS 2 a b", "[1 1]"}, {"PTTL h", "1000"},
		{
			"HPERSIST h FIELDS 1 a",
			"[1]",
		}, {"PTTL h", "1000"}, {"+", "100ms"}, {"HKEYS h", `["a"]`}, {"PTTL h", "900"},
		{
			"HSET h c 1",
			"1",
		}, {"PTTL h", "900"}, {"PERSIST h", "1"}, {"TTL h", "-1"}, {"+", "2s"}, {"HLEN h", "2"},
		{
			"HPEXPIRE h 3000 FIELDS 2 a c",
			"[1 1]",
		}, {"PEXPIRE h 500", "1"}, {"+", "500ms"}, {"EXISTS h", "0"},
		{
			"HSET h x 1",
			"1",
		}, {"HPEXPIRE h 400 FIELDS 1 x", "[1]"}, {"RENAME h g", "OK"}, {"COPY g f", "1"},
		{"PTTL g", "-1"}, {"HPTTL f FIELDS 1 x", "[400]"}, {"+", "400ms"}, {"DBSIZE", "0"},
	}...)
}

// rows returns the number of stored element rows of database 0.
func (s *testServer) rows() (n int64) {
	s.t.Helper()
	require.NoError(s.t, s.db.View(func(tx *kv.Tx) (err error) {
		n, err = tx.CF("e0").Count()
		return err
	}))
	return n
}

// TestRowsOfDeadCollectionsAreDeleted, whatever ended the collection.
func TestRowsOfDeadCollectionsAreDeleted(t *testing.T) {
	const fields = 10000
	fill := func(c *client, key string) {
		for from := 0; from < fields; from += 1000 {
			args := []string{"HSET", key}
			for i := from; i < from+1000; i++ {
				args = append(args, fmt.Sprint(i), "v")
			}
			c.do(args...)
		}
	}
	for _, end := range []string{
		"DEL h", "UNLINK h", "SET h v", "RENAME other h", "COPY other h REPLACE", "PEXPIRE h 1",
		"EXPIRE h -1",
		"PEXPIRE h 1 new", "MOVE h 1", "HPEXPIRE small 1 FIELDS 1 f", "FLUSHDB",
	} {
		t.Run(end, func(t *testing.T) {
			clock := newClock()
			s := start(t, Options{Clock: clock.now})
			c := s.client()
			c.line("HSET other x y")
			c.line("HSET small f v")
			fill(c, "h")
			before := s.rows()
			args := words(end)
			recreate := args[len(args)-1] == "new"
			if recreate {
				args = args[:len(args)-1]
			}
			require.NotContains(t, c.do(args...), "error")
			if recreate {
				clock.advance(time.Second)
				c.line("HSET h x y") // over a row that has expired and is still stored
			}
			clock.advance(time.Second)
			s.settle()
			switch {
			case args[0] == "FLUSHDB":
				require.Zero(t, s.rows())
			case args[0] == "HPEXPIRE":
				require.Equal(t, before-2, s.rows())
				require.Equal(t, "0", c.line("EXISTS small"))
			default:
				require.Less(t, s.rows(), int64(10))
			}
			dead, err := s.sweep()
			require.NoError(t, err)
			require.Zero(t, dead, "collections without a key")
		})
	}
}

// TestSweepFindsCollectionsThatNoKeyNames: another program purged the master row.
func TestSweepFindsCollectionsThatNoKeyNames(t *testing.T) {
	clock := newClock()
	dir := t.TempDir()
	s := start(t, Options{Clock: clock.now, Dir: dir})
	c := s.client()
	c.line("HSET h a 1 b 2")
	c.line("HSET alive a 1")
	c.line("PEXPIRE h 1000")
	s.shutdown()
	clock.advance(time.Minute)
	db, err := kv.Open(dir+"/"+StoreFile, &kv.Options{Clock: clock.now})
	require.NoError(t, err)
	r, err := db.PurgeExpired(t.Context(), kv.PurgeOptions{Force: true})
	require.NoError(t, err)
	require.EqualValues(t, 1, r.Purged)
	require.NoError(t, db.Close())

	s = start(t, Options{Clock: clock.now, Dir: dir})
	_, err = s.sweep() // the one of the start may have been first
	require.NoError(t, err)
	s.settle()
	require.EqualValues(t, 2, s.rows())
	require.Equal(t, `"1"`, s.client().line("HGET alive a"))
}
