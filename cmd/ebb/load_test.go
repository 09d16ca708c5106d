package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

// dumped fills a store with what a dump must carry, and returns the dump.
func dumped(t *testing.T, s *timedStore) (file, text string) {
	t.Helper()
	now := s.now
	db, err := kv.Open(s.path, &kv.Options{Clock: func() time.Time { return now }})
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		for name, o := range map[string]kv.CFOptions{
			"empty": {}, "usual": {DefaultTTL: time.Hour}, "m": {Retention: time.Hour,
				Partition: time.Minute},
		} {
			if err := tx.CreateCF(name, o); err != nil {
				return err
			}
		}
		for range 5 {
			if _, err := tx.CF("usual").NextSequence(); err != nil {
				return err
			}
		}
		keep := kv.PutOptions{NoExpiry: true}
		_, err := tx.CF("usual").PutWith([]byte("permanent"), nil, keep)
		if err != nil {
			return err
		}
		for _, key := range []string{"a", "\x00\xff", "é \"<\n"} {
			if err := tx.PutTTL([]byte(key), []byte(key+key), 1234*time.Millisecond); err != nil {
				return err
			}
		}
		if err := tx.Put([]byte("large"), make([]byte, largeValue+1)); err != nil {
			return err
		}
		if err := tx.CF("m").Append(now.Add(-time.Minute), []byte{0xff}, []byte("old")); err != nil {
			return err
		}
		return tx.CF("m").Append(now, []byte("k"), []byte("new"))
	}))
	require.NoError(t, db.Close())
	text = s.good("dump", "--json")
	file = filepath.Join(t.TempDir(), "dump.jsonl")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file, text
}

// TestLoadOfADumpLosesNothing: the dump of the copy is that of the original, from a file and through
// a pipe, and also when keys are hex.
func TestLoadOfADumpLosesNothing(t *testing.T) {
	s := newTimedStore(t)
	file, text := dumped(t, s)
	c := newTimedStore(t)
	require.Equal(t, "7 rows loaded\n", c.good("load", file))
	require.Equal(t, text, c.good("dump", "--json"))
	c.good("check")

	c = newTimedStore(t)
	require.NoError(t, os.WriteFile(file, []byte(s.good("dump", "--json", "--hex")), 0o600))
	require.Equal(t, map[string]any{"rows": 7.0, "skipped": 0.0, "expired": 0.0, "missing": 0.0},
		object(t, c.good("load", file, "--json")))
	require.Equal(t, text, c.good("dump", "--json"))
}

func TestLoadIntoRowsThatAreThere(t *testing.T) {
	s := newTimedStore(t)
	file, text := dumped(t, s)
	c := newTimedStore(t)
	c.good("put", "a", "mine")
	c.code(exitExists, "exists", "load", file)
	require.Contains(t, c.ebb("load", file).stderr, "hint: --skip leaves rows that are there")
	require.Equal(t, "6 rows loaded, 1 skipped\n", c.good("load", file, "--skip"))
	require.Equal(t, "mine", c.good("get", "a"))
	require.Equal(t, "7 rows loaded\n", c.good("load", file, "--replace"))
	require.Equal(t, text, c.good("dump", "--json"))
	c.now = c.now.Add(2 * time.Hour)
	require.Equal(t, "2 rows loaded, 5 expired\n", c.good("load", file, "--replace"))
	c.code(exitError, "usage", "load", file, "--replace", "--skip")
}

func TestLoadRefusesWhatIsNoDump(t *testing.T) {
	for _, text := range []string{
		"{", "[]", "{}", `{"default_ttl_ms":1}`, `{"key":"k"}`,
		`{"family":"f","key":"k"}`, `{"family":"f","key_hex":"x","value":""}`,
		`{"family":"f","key":"k","value":"v","expiry":"soon"}`, `{"family":"__x","key":"k","value":"v"}`,
		`{"family":"f","key":"k","value":"v","expires":"2030-01-01T00:00:00Z"}`,
	} {
		s := newTimedStore(t)
		file := filepath.Join(t.TempDir(), "dump")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		require.Equal(t, exitError, s.ebb("load", file).code, text)
	}
	s := newTimedStore(t)
	file := filepath.Join(t.TempDir(), "dump")
	lines := []string{
		`{"missing":{"what":"rows"}}`, `{"family":"default","key":"a","value_missing":true}`,
		`{"family":"default","key":"b","value":"v"}`,
	}
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600))
	a := s.ebb("load", file)
	require.Equal(t, exitError, a.code)
	require.Contains(t, a.stderr, "missing in it, at 2 places")
	require.Equal(t, "b\tv\n", s.good("scan"))
}

// TestLoadOfAScan: the lines of a listing name no family, and go to --family.
func TestLoadOfAScan(t *testing.T) {
	s, c := newTimedStore(t), newTimedStore(t)
	s.good("put", "a", "1", "--family", "f")
	s.good("put", "b", "2", "--family", "f", "--expire-at", "2130-01-31T12:00:00Z")
	rows := s.good("scan", "--family", "f", "--expiry", "--json")
	file := filepath.Join(t.TempDir(), "rows")
	require.NoError(t, os.WriteFile(file, []byte(rows), 0o600))
	require.Equal(t, "2 rows loaded\n", c.good("load", file, "--family", "g"))
	require.Equal(t, rows, c.good("scan", "--family", "g", "--expiry", "--json"))
	require.Equal(t, "2 rows loaded\n", c.good("load", file))
	require.Equal(t, rows, c.good("scan", "--expiry", "--json"))
	require.NoError(t, os.WriteFile(file, []byte(rows+"key,value\n"), 0o600))
	a := c.ebb("load", file, "--skip")
	require.Contains(t, a.stderr, "load: line 3: ")
	require.Contains(t, a.stderr, `a row is a line as {"key":"k","value":"v"}`)
	require.NoError(t, os.WriteFile(file, []byte(`{"key":1,"value":"v"}`), 0o600))
	require.Contains(t, c.ebb("load", file).stderr, "key is of JSON's kind number, and not string")
	require.NoError(t, os.WriteFile(file, []byte(`[{"key":"1","value":"v"}]`), 0o600))
	require.Contains(t, c.ebb("load", file).stderr, "the line is of JSON's kind array, and not an object")
}

// TestALoadThatIsInterruptedGoesOn: the error names the flag that goes on behind what is stored.
func TestALoadThatIsInterruptedGoesOn(t *testing.T) {
	store := storePath(t)
	good(t, "put", store, "k", "v")
	rows := `{"key":"l","value":"v"}`
	a := interruptedEbb(ended(t), t, strings.NewReader(rows), "load", store)
	require.Contains(t, a.stderr, "go on with --skip")
	a = interruptedEbb(ended(t), t, strings.NewReader(rows), "load", store, "--replace")
	require.NotContains(t, a.stderr, "--skip")
}
