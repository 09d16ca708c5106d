package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// timedStore is a store and the clock of the commands that are run on it.
type timedStore struct {
	t    *testing.T
	path string
	now  time.Time
}

// newTimedStore begins at noon of a day of the year 2030.
func newTimedStore(t *testing.T) *timedStore {
	return &timedStore{t: t, path: storePath(t), now: time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)}
}

// ebb runs a command on the store at the present instant.
func (s *timedStore) ebb(command string, args ...string) answer {
	s.t.Helper()
	var out, stderr bytes.Buffer
	a := &app{
		stdin:  strings.NewReader(""),
		out:    newOutput(&out),
		stderr: &stderr,
		clock:  func() time.Time { return s.now },
	}
	code := a.run(s.t.Context(), append([]string{command, s.path}, args...))
	return answer{code, out.String(), stderr.String()}
}

// good is ebb for a command that must succeed; it returns the output.
func (s *timedStore) good(command string, args ...string) string {
	s.t.Helper()
	a := s.ebb(command, args...)
	require.Equal(s.t, exitOK, a.code, "ebb %s %q: %s", command, args, a.stderr)
	return a.out
}

// code is ebb for a command that must end with that code and kind of error, in text and in JSON.
func (s *timedStore) code(code int, kind, command string, args ...string) {
	s.t.Helper()
	a := s.ebb(command, args...)
	require.Equal(s.t, code, a.code, "ebb %s %q: %s", command, args, a.stderr)
	require.Empty(s.t, a.out)
	a = s.ebb(command, append(args, "--json")...)
	require.Equal(s.t, code, a.code)
	require.Equal(s.t, kind, object(s.t, a.stderr)["kind"], "ebb %s %q", command, args)
}

func TestAKeyWithATTLIsGoneWhenItHasPassed(t *testing.T) {
	s := newTimedStore(t)
	s.good("put", "k", "v", "--ttl", "10s")
	require.Equal(t, "10s\n", s.good("ttl", "k"))
	s.now = s.now.Add(9999 * time.Millisecond)
	require.Equal(t, "v", s.good("get", "k"))
	require.Equal(t, "1ms\n", s.good("ttl", "k"))
	s.now = s.now.Add(time.Millisecond)
	s.code(exitNotFound, "not_found", "get", "k")
	s.code(exitNotFound, "not_found", "ttl", "k")
	s.code(exitNotFound, "not_found", "expire", "k", "1h")
	s.code(exitNotFound, "not_found", "expire", "k", "--at", "2031-01-01T00:00:00Z")
	s.code(exitNotFound, "not_found", "persist", "k")
	s.code(exitNotFound, "not_found", "put", "k", "w", "--if-present")
	require.Empty(t, s.good("scan"))
}

func TestExpireAtTakesRFC3339AndMilliseconds(t *testing.T) {
	s := newTimedStore(t)
	s.good("put", "rfc", "v", "--expire-at", "2030-01-31T14:00:00.5+01:00")
	require.Equal(t, "1h0m0.5s\n", s.good("ttl", "rfc"))
	s.good("put", "ms", "v", "--expire-at", fmt.Sprint(s.now.UnixMilli()+1))
	require.Equal(t, "1ms\n", s.good("ttl", "ms"))
	s.good("put", "far", "v", "--expire-at", "9223372036854774000")
	require.NotContains(
		t,
		s.good("scan", "--expiring-before", "9223372036854774000"),
		"far",
		"the bound is not in the range",
	)
	require.Equal(t, "9223372036854774000", object(t, s.good("ttl", "far", "--json"))["expiry"])
}

func TestTTLIsNoneForAPermanentKeyAndCode2ForAnAbsentOne(t *testing.T) {
	s := newTimedStore(t)
	s.good("put", "k", "v")
	require.Equal(t, "none\n", s.good("ttl", "k"))
	require.Equal(
		t,
		map[string]any{"family": "default", "key": "k", "ttl_ms": nil, "expiry": nil},
		object(t, s.good("ttl", "k", "--json")),
	)
	s.code(exitNotFound, "not_found", "ttl", "absent")
	s.code(exitNotFound, "family_not_found", "ttl", "k", "--family", "absent")
}

func TestJSONOfAKeyWithAnExpiry(t *testing.T) {
	s := newTimedStore(t)
	want := map[string]any{
		"family": "default",
		"key":    "k",
		"size":   1.0,
		"ttl_ms": 90e3,
		"expiry": "2030-01-31T12:01:30Z",
	}
	require.Equal(t, want, object(t, s.good("put", "k", "v", "--ttl", "90s", "--json")))
	want["value"] = "v"
	require.Equal(t, want, object(t, s.good("get", "k", "--json")))
	delete(want, "size")
	delete(want, "value")
	require.Equal(t, want, object(t, s.good("ttl", "k", "--json")))

	want["ttl_ms"], want["expiry"] = 36*3600e3, "2030-02-02T00:00:00Z"
	require.Equal(t, want, object(t, s.good("expire", "k", "36h", "--json")))
	want["ttl_ms"], want["expiry"] = 1.0, "2030-01-31T12:00:00.001Z"
	require.Equal(t, want, object(t, s.good("expire", "k", "--at", "2030-01-31T12:00:00.001Z", "--json")))
	want["ttl_ms"], want["expiry"] = nil, nil
	require.Equal(t, want, object(t, s.good("persist", "k", "--json")))
}

func TestGetPrintsTheTTLBesideTheValue(t *testing.T) {
	s := newTimedStore(t)
	s.good("put", "k", "v", "--ttl", "1m")
	s.good("put", "permanent", "v")
	require.Equal(t, answer{exitOK, "v", "1m\n"}, s.ebb("get", "k", "--ttl"))
	require.Equal(t, answer{exitOK, "v", "none\n"}, s.ebb("get", "permanent", "--ttl"))
	require.Equal(t, answer{exitOK, "v", ""}, s.ebb("get", "k"))
	require.Contains(t, object(t, s.good("get", "permanent", "--ttl", "--json")), "ttl_ms")
	require.NotContains(t, object(t, s.good("get", "permanent", "--json")), "ttl_ms")
}

func TestPutMakesAKeyPermanentUnlessToldToKeepItsExpiry(t *testing.T) {
	s := newTimedStore(t)
	s.good("put", "k", "1", "--ttl", "1m")
	s.good("put", "k", "2", "--keep-ttl")
	require.Equal(t, "2", s.good("get", "k"))
	require.Equal(t, "1m\n", s.good("ttl", "k"))
	s.good("put", "k", "3")
	require.Equal(t, "none\n", s.good("ttl", "k"))
	s.good("put", "k", "4", "--ttl", "1m")
	s.good("put", "k", "5", "--no-expiry")
	require.Equal(t, "none\n", s.good("ttl", "k"))
}

func TestPutOnACondition(t *testing.T) {
	s := newTimedStore(t)
	s.good("put", "lease", "me", "--ttl", "10s", "--if-absent")
	s.code(exitExists, "exists", "put", "lease", "you", "--ttl", "10s", "--if-absent")
	require.Equal(t, "me", s.good("get", "lease"))
	require.Equal(t, "10s\n", s.good("ttl", "lease"))
	s.now = s.now.Add(10 * time.Second)
	s.good("put", "lease", "you", "--ttl", "10s", "--if-absent")
	require.Equal(t, "you", s.good("get", "lease"))

	s.code(exitNotFound, "not_found", "put", "absent", "v", "--if-present")
	s.code(exitNotFound, "not_found", "get", "absent")
	s.good("put", "lease", "me", "--if-present")
	require.Equal(t, "me", s.good("get", "lease"))
}

func TestExpiryFlagsThatMakeNoSense(t *testing.T) {
	s := newTimedStore(t)
	s.good("put", "k", "v", "--ttl", "1m")
	for _, c := range []struct {
		kind string
		args []string
	}{
		{"usage", []string{"put", "k", "w", "--ttl", "1m", "--keep-ttl"}},
		{"usage", []string{"put", "k", "w", "--ttl", "1m", "--expire-at", "2031-01-01T00:00:00Z"}},
		{"usage", []string{"put", "k", "w", "--no-expiry", "--ttl", "1m"}},
		{"usage", []string{"put", "k", "w", "--if-absent", "--if-present"}},
		{"usage", []string{"put", "k", "w", "--if-absent", "--keep-ttl"}},
		{"usage", []string{"put", "k", "w", "--ttl", "soon"}},
		{"usage", []string{"put", "k", "w", "--expire-at", "tomorrow"}},
		{"usage", []string{"put", "k", "w", "--expire-at", "0"}},
		{"usage", []string{"put", "k", "w", "--expire-at", "0001-01-01T00:00:00Z"}},
		{"invalid_ttl", []string{"put", "k", "w", "--ttl", "0s"}},
		{"invalid_ttl", []string{"put", "k", "w", "--ttl=-1s"}},
		{"invalid_ttl", []string{"put", "k", "w", "--expire-at", "2030-01-31T12:00:00Z"}},
		{"usage", []string{"expire", "k"}},
		{"usage", []string{"expire", "k", "soon"}},
		{"usage", []string{"expire", "k", "1m", "--at", "2031-01-01T00:00:00Z"}},
		{"invalid_ttl", []string{"expire", "k", "0s"}},
		{"invalid_ttl", []string{"expire", "k", "--at", "2029-01-01T00:00:00Z"}},
		{"usage", []string{"purge", "--limit", "-1"}},
		{"usage", []string{"purge", "--batch", "-1"}},
		{"usage", []string{"scan", "--expiring-before", "2031-01-01T00:00:00Z", "--reverse"}},
		{"usage", []string{"scan", "--expiring-before", "2031-01-01T00:00:00Z", "--prefix", "k"}},
	} {
		s.code(exitError, c.kind, c.args[0], c.args[1:]...)
	}
	require.Equal(t, "v", s.good("get", "k"))
	require.Equal(t, "1m\n", s.good("ttl", "k"))
}

// fill puts keys with a ttl of one second and one permanent key into a family.
func (s *timedStore) fill(family string, keys int) {
	s.t.Helper()
	db, err := kv.Open(s.path, &kv.Options{Clock: func() time.Time { return s.now }})
	require.NoError(s.t, err)
	require.NoError(s.t, db.EnsureCF(family, kv.CFOptions{}))
	require.NoError(s.t, db.Update(func(tx *kv.Tx) error {
		cf := tx.CF(family)
		for i := range keys {
			if err := cf.PutTTL(fmt.Appendf(nil, "k%04d", i), []byte("value"), time.Second); err != nil {
				return err
			}
		}
		return cf.Put([]byte("permanent"), []byte("value"))
	}))
	require.NoError(s.t, db.Close())
}

func familyStats(t *testing.T, text, family string) map[string]any {
	t.Helper()
	stats := object(t, text)["stats"].(map[string]any)
	return stats["families"].(map[string]any)[family].(map[string]any)
}

func TestStatsTellsOfExpiry(t *testing.T) {
	s := newTimedStore(t)
	s.good("put", "a", "v", "--ttl", "1s")
	s.good("put", "b", "v", "--ttl", "1m")
	s.good("put", "c", "v")
	s.good("put", "d", "v", "--family", "plain")
	s.now = s.now.Add(time.Second)

	text := s.good("stats", "--json")
	timed, plain := familyStats(t, text, "default"), familyStats(t, text, "plain")
	require.Equal(t, []any{3.0, 2.0, 1.0}, []any{timed["rows"], timed["ttl_rows"], timed["due"]})
	require.Equal(t, []any{1.0, 0.0, 0.0}, []any{plain["rows"], plain["ttl_rows"], plain["due"]})
	require.Equal(t, map[string]any{"default": "2030-01-31T12:00:01Z"}, object(t, text)["next_expiry"])

	lines := strings.Split(strings.TrimSpace(s.good("stats")), "\n")
	require.Equal(
		t,
		[]string{
			"family",
			"rows",
			"ttl_rows",
			"due",
			"purged",
			"evicted",
			"purge_batches",
			"bytes_reclaimed",
			"partitions_dropped",
			"next_expiry",
			"default_ttl",
		},
		strings.Fields(lines[len(lines)-3]),
	)
	require.Equal(
		t,
		[]string{"default", "3", "2", "1", "0", "0", "0", "0", "0", "2030-01-31T12:00:01Z", "none"},
		strings.Fields(lines[len(lines)-2]),
	)
	require.Equal(
		t,
		[]string{"plain", "1", "0", "0", "0", "0", "0", "0", "0", "none", "none"},
		strings.Fields(lines[len(lines)-1]),
	)
}

// TestStatsTellsOfAnExpiryThatCannotBeRead: it was shown as none.
func TestStatsTellsOfAnExpiryThatCannotBeRead(t *testing.T) {
	s := newTimedStore(t)
	s.good("put", "a", "v", "--ttl", "1s")
	sound, err := os.ReadFile(s.path)
	require.NoError(t, err)
	unread := 0
	for _, line := range objects(t, s.good("pages", "--json")) {
		if line["kind"] != "leaf" || line["use"] != "used" {
			continue
		}
		require.NoError(t, os.WriteFile(s.path, sound, 0o666))
		flip(t, s.path, int64(line["pgid"].(float64))*4096+1000)
		text, machine := s.ebb("stats"), s.ebb("stats", "--json")
		require.Equal(t, text.code, machine.code)
		if text.code == exitOK || text.out == "" { // another page, or one that opening needs
			require.NotContains(t, text.out, unreadable)
			continue
		}
		unread++
		require.Equal(t, exitError, text.code)
		require.Contains(t, text.out, unreadable)
		require.Contains(t, text.stderr, "next expiry of family")
		require.Equal(t, map[string]any{"default": unreadable}, object(t, machine.out)["next_expiry"])
	}
	require.NotZero(t, unread)
}

func TestScanInOrderOfExpiry(t *testing.T) {
	s := newTimedStore(t)
	s.good("put", "z", "v", "--ttl", "1s")
	s.good("put", "permanent", "v")
	s.good("put", "a", "v", "--ttl", "3s")
	s.good("put", "m", "v", "--ttl", "2s")
	s.now = s.now.Add(1500 * time.Millisecond)

	require.Equal(
		t,
		"2030-01-31T12:00:01Z\tz\n2030-01-31T12:00:02Z\tm\n",
		s.good("scan", "--expiring-before", "2030-01-31T12:00:03Z"),
	)
	require.Equal(
		t,
		"2030-01-31T12:00:01Z\tz\n",
		s.good("scan", "--expiring-before", "2030-01-31T12:00:03.001Z", "--limit", "1"),
	)
	require.Empty(t, s.good("scan", "--expiring-before", "2030-01-31T12:00:01Z"))
	require.Equal(t, []map[string]any{
		{"key": "z", "expiry": "2030-01-31T12:00:01Z", "ttl_ms": 0.0},
		{"key": "m", "expiry": "2030-01-31T12:00:02Z", "ttl_ms": 500.0},
		{"key": "a", "expiry": "2030-01-31T12:00:03Z", "ttl_ms": 1500.0},
	}, objects(t, s.good("scan", "--expiring-before", "2031-01-01T00:00:00Z", "--json")))
	s.code(
		exitNotFound,
		"family_not_found",
		"scan",
		"--expiring-before",
		"2031-01-01T00:00:00Z",
		"--family",
		"absent",
	)
}

func TestDumpPrintsExpiriesAndCountsTheExpired(t *testing.T) {
	s := newTimedStore(t)
	s.good("put", "a", "v", "--ttl", "1s")
	s.good("put", "b", "v", "--ttl", "2s")
	s.good("put", "c", "v")
	s.now = s.now.Add(time.Second)
	require.Equal(
		t,
		"family default: 2 rows, 1 expired and not yet deleted\nb\tv\t2030-01-31T12:00:02Z\nc\tv\n",
		s.good("dump"),
	)
	require.Equal(t, []map[string]any{
		{"family": "default", "key": "b", "value": "v", "expiry": "2030-01-31T12:00:02Z"},
		{"family": "default", "key": "c", "value": "v"},
	}, objects(t, s.good("dump", "--json")))
}

// TestDelTakesExpiredRowsAlong: del says that an expired key is not there, and yet its rows are
// gone afterwards.
func TestDelTakesExpiredRowsAlong(t *testing.T) {
	s := newTimedStore(t)
	s.good("put", "k", "v", "--ttl", "1s")
	s.now = s.now.Add(time.Second)
	a := s.ebb("del", "k")
	require.Equal(t, exitNotFound, a.code, a.stderr)
	require.Equal(t, 0.0, familyStats(t, s.good("stats", "--json"), "default")["rows"])
}

// TestCheckProvesTheExpiryIndexes takes one row out of the key index of a store, below what keeps
// the indexes together.
func TestCheckProvesTheExpiryIndexes(t *testing.T) {
	s := newTimedStore(t)
	s.good("put", "a", "v", "--ttl", "1s")
	s.good("put", "b", "v", "--ttl", "2s")
	s.now = s.now.Add(time.Second)
	require.Contains(t, s.good("check"), "no problems", "expired keys are none")

	store, err := txn.Open(s.path, txn.Options{})
	require.NoError(t, err)
	tx, err := store.Begin(t.Context(), true)
	require.NoError(t, err)
	family, err := cf.Lookup(tx, "default")
	require.NoError(t, err)
	_, err = tx.Delete(family.KeyIndex(), []byte("b"))
	require.NoError(t, err)
	require.NoError(t, tx.Commit(txn.Sync))
	require.NoError(t, store.Close())

	a := s.ebb("check", "--json")
	require.Equal(t, exitError, a.code)
	m := object(t, a.out)
	require.Equal(t, false, m["ok"])
	problem := m["problems"].([]any)[0].(map[string]any)
	require.Equal(t, "expiry", problem["kind"])
	require.Equal(t, "default", problem["family"])
	require.Regexp(t, "^I[14]: ", problem["detail"])
}
