package engine

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	testRows   = 500
	testPrefix = 10 // rows that share the first 8 bytes of their keys
)

func testKey(i int) []byte {
	k := binary.BigEndian.AppendUint64(nil, uint64(i/testPrefix)<<32)
	return binary.BigEndian.AppendUint64(k, uint64(i))
}

func testValue(i int) []byte { return fmt.Appendf(nil, "%020d", i) }

// want is what a scan of rows must give, in that order.
func want(rows ...int) (t Tally) {
	for _, i := range rows {
		t.Add(testKey(i), testValue(i))
	}
	return t
}

func upTo(lo, hi int) (rows []int) {
	for i := lo; i < hi; i++ {
		rows = append(rows, i)
	}
	return rows
}

func downFrom(hi, lo int) []int {
	rows := upTo(lo, hi)
	slices.Reverse(rows)
	return rows
}

type testStore struct {
	Store
	Client
	now time.Time
}

func openTest(t *testing.T, e Engine, dir string, change func(*Config)) *testStore {
	t.Helper()
	s := &testStore{now: time.Now()}
	c := Config{Dir: dir, Durable: true, Clients: 1, Bytes: 1 << 20, Now: func() time.Time { return s.now }}
	if change != nil {
		change(&c)
	}
	var err error
	s.Store, err = e.Open(c)
	require.NoError(t, err)
	s.Client, err = s.Store.Client()
	require.NoError(t, err)
	return s
}

func (s *testStore) close(t *testing.T) {
	t.Helper()
	require.NoError(t, s.Client.Close())
	require.NoError(t, s.Store.Close())
}

func (s *testStore) get(t *testing.T, i int) string {
	t.Helper()
	value := "not found"
	found, err := s.Get(testKey(i), func(v []byte) { value = string(v) })
	require.NoError(t, err)
	require.Equal(t, value != "not found", found)
	return value
}

// each runs a test on every engine that ok takes.
func each(t *testing.T, ok func(Engine) bool, test func(t *testing.T, e Engine)) {
	for _, name := range Names() {
		e, err := ByName(name)
		require.NoError(t, err)
		if ok(e) {
			t.Run(name, func(t *testing.T) { test(t, e) })
		}
	}
}

func plain(e Engine) bool   { return !e.OnlyTTL }
func expires(e Engine) bool { return e.Expires }

// TestReadsWhatWasWritten: puts, batches and deletes, read back in the same and in a second
// process-like open.
func TestReadsWhatWasWritten(t *testing.T) {
	each(t, func(Engine) bool { return true }, func(t *testing.T, e Engine) {
		dir := t.TempDir()
		s := openTest(t, e, dir, nil)
		require.NoError(t, s.Put(testKey(0), testValue(0)))
		require.NoError(t, s.Batch(func(w Writer) error {
			for i := 1; i < testRows; i++ {
				require.NoError(t, w.Put(testKey(i), testValue(i)))
			}
			return nil
		}))
		require.NoError(t, s.Batch(func(w Writer) error { return w.Delete(testKey(7)) }))
		require.NoError(t, s.Put(testKey(8), []byte("again, and again")))
		for range 2 {
			require.Equal(t, string(testValue(0)), s.get(t, 0))
			require.Equal(t, string(testValue(testRows-1)), s.get(t, testRows-1))
			require.Equal(t, "not found", s.get(t, 7))
			require.Equal(t, "again, and again", s.get(t, 8))
			require.Equal(t, "not found", s.get(t, testRows))
			s.close(t)
			s = openTest(t, e, dir, nil)
		}
		s.close(t)
	})
}

func TestScansBothWaysWithinBounds(t *testing.T) {
	each(t, plain, func(t *testing.T, e Engine) {
		s := openTest(t, e, t.TempDir(), nil)
		defer s.close(t)
		require.NoError(t, s.Batch(func(w Writer) error {
			for i := range testRows {
				require.NoError(t, w.Put(testKey(i), testValue(i)))
			}
			return nil
		}))
		prefix := func(i int) []byte { return testKey(i * testPrefix)[:8] }
		for _, c := range []struct {
			name string
			r    Range
			want Tally
		}{
			{"all", Range{}, want(upTo(0, testRows)...)},
			{"all, back", Range{Reverse: true}, want(downFrom(testRows, 0)...)},
			{"a prefix", Range{Lo: prefix(3), Hi: prefix(4)}, want(upTo(30, 40)...)},
			{"a prefix, back", Range{Lo: prefix(3), Hi: prefix(4), Reverse: true}, want(downFrom(40, 30)...)},
			{"from a row to a row", Range{Lo: testKey(5), Hi: testKey(25)}, want(upTo(5, 25)...)},
			{"from a row to a row, back", Range{Lo: testKey(5), Hi: testKey(25), Reverse: true},
				want(downFrom(25, 5)...)},
			{"to the end", Range{Lo: testKey(490)}, want(upTo(490, testRows)...)},
			{"past the end, back", Range{Hi: testKey(testRows + 9), Reverse: true},
				want(downFrom(testRows, 0)...)},
			{"nothing", Range{Lo: testKey(testRows)}, Tally{}},
		} {
			t.Run(c.name, func(t *testing.T) {
				var got Tally
				require.NoError(t, s.View(func(r Reader) error { return r.Scan(c.r, &got) }))
				require.Equal(t, c.want, got)
			})
		}
		require.NoError(t, s.View(func(r Reader) error {
			for _, i := range []int{0, 250, testRows - 1} {
				var value []byte
				found, err := r.Get(testKey(i), func(v []byte) { value = append(value, v...) })
				require.NoError(t, err)
				require.True(t, found)
				require.Equal(t, testValue(i), value)
			}
			found, err := r.Get(testKey(testRows), func([]byte) { require.Fail(t, "value of a missing key") })
			require.False(t, found)
			return err
		}))
	})
}

func TestBulkLoadIsThereAfterReopening(t *testing.T) {
	each(t, plain, func(t *testing.T, e Engine) {
		dir := t.TempDir()
		s := openTest(t, e, dir, func(c *Config) { c.Sorted = true })
		b, ok := s.Store.(BulkLoader)
		if !ok {
			s.close(t)
			return
		}
		k, v := make([]byte, 16), make([]byte, 20)
		require.NoError(t, b.BulkLoad(testRows, func(i int) (key, value []byte) {
			copy(k, testKey(i))
			copy(v, testValue(i))
			return k, v // overwritten by the next row
		}))
		s.close(t)
		s = openTest(t, e, dir, nil)
		defer s.close(t)
		var got Tally
		require.NoError(t, s.View(func(r Reader) error { return r.Scan(Range{}, &got) }))
		require.Equal(t, want(upTo(0, testRows)...), got)
	})
}

func TestEnginesAreWhatTheyClaim(t *testing.T) {
	each(t, func(Engine) bool { return true }, func(t *testing.T, e Engine) {
		s := openTest(t, e, t.TempDir(), func(c *Config) { c.KeepLog = true })
		defer s.close(t)
		purger, purges := s.Client.(Purger)
		if e.Purges {
			require.True(t, purges)
			n, err := purger.Purge(4)
			require.NoError(t, err)
			require.Zero(t, n)
		}
		if e.Checkpoints {
			require.NoError(t, s.Store.(Checkpointer).Checkpoint())
		}
		require.NoError(t, s.Batch(func(w Writer) error {
			_, ok := w.(ExpiringWriter)
			require.True(t, ok || !e.Expires, "PutTTL")
			return nil
		}))
	})
}

// TestExpiredRowsAreHiddenAndPurged: of the engines that can be told the time, those that purge.
func TestExpiredRowsAreHiddenAndPurged(t *testing.T) {
	each(t, func(e Engine) bool { return e.Purges }, func(t *testing.T, e Engine) {
		s := openTest(t, e, t.TempDir(), nil)
		defer s.close(t)
		put := func(i int, ttl time.Duration) {
			require.NoError(
				t,
				s.Batch(func(w Writer) error {
					return w.(ExpiringWriter).PutTTL(testKey(i),
						testValue(i), ttl)
				}),
			)
		}
		for i := range 10 {
			put(i, time.Minute)
		}
		put(3, time.Hour) // its first expiry no longer counts
		require.Equal(t, string(testValue(1)), s.get(t, 1))
		// No read before the purge: one that meets an expired row may delete it.
		s.now = s.now.Add(2 * time.Minute)
		n, err := s.Client.(Purger).Purge(4)
		require.NoError(t, err)
		require.Equal(t, 9, n)
		require.Equal(t, "not found", s.get(t, 1))
		require.Equal(t, string(testValue(3)), s.get(t, 3))
		n, err = s.Client.(Purger).Purge(4)
		require.NoError(t, err)
		require.Zero(t, n)

		put(4, time.Minute)
		s.now = s.now.Add(time.Minute)
		require.Equal(t, "not found", s.get(t, 4), "due and not purged")
	})
}

func TestRowsWithALongLifeAreThere(t *testing.T) {
	each(t, expires, func(t *testing.T, e Engine) {
		s := openTest(t, e, t.TempDir(), nil)
		defer s.close(t)
		require.NoError(t, s.Batch(func(w Writer) error {
			return w.(ExpiringWriter).PutTTL(testKey(1), testValue(1), 365*24*time.Hour)
		}))
		require.Equal(t, string(testValue(1)), s.get(t, 1))
	})
}

func TestSelect(t *testing.T) {
	names := func(list string) (names []string) {
		chosen, err := Select(list)
		require.NoError(t, err)
		for _, e := range chosen {
			names = append(names, e.Name)
		}
		return names
	}
	require.Equal(t, Names(), names(""))
	require.Equal(t, []string{"bbolt", "ebb"}, names("bbolt, ebb ,bbolt"))
	_, err := Select("ebb,nosuch")
	require.ErrorContains(t, err, `no engine "nosuch"`)
}
