package kv_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/kv"
)

type timedRow struct {
	ms         int64
	key, value string
}

// TestModelOfTimedFamilies runs random calls on a family and on a sorted slice, within transactions
// and across reopens, with a clock that steps in both directions, and compares all answers.
func TestModelOfTimedFamilies(t *testing.T) {
	racetest.OneGoroutine(t)
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { modelTimed(t, rand.New(rand.NewPCG(seed, 51))) })
	}
}

func modelTimed(t *testing.T, rnd *rand.Rand) {
	retention := time.Duration(1+rnd.IntN(2000)) * time.Millisecond
	width := time.Duration(1+rnd.IntN(700)) * time.Millisecond
	db, clock := openTimed(t, kv.Options{MaxClockStep: 50 * time.Millisecond}, retention, width)
	clock.ms.Store((time.UnixMilli(rnd.Int64N(4000) - 2000)).UnixMilli())
	var model []timedRow
	order := func(a, b timedRow) int { return cmp.Or(cmp.Compare(a.ms, b.ms), cmp.Compare(a.key, b.key)) }
	for range 300 {
		var next []timedRow
		undo := rnd.IntN(4) == 0
		err := db.Update(func(tx *kv.Tx) error {
			c, now := tx.CF("m"), tx.Now().UnixMilli()
			next = slices.Clone(model)
			live := func(r timedRow) bool { return now < r.ms+retention.Milliseconds() }
			for range 1 + rnd.IntN(20) {
				row := timedRow{now + rnd.Int64N(1200) - 800, fmt.Sprint("k", rnd.IntN(3)),
					fmt.Sprint(rnd.IntN(1000))}
				ts := time.UnixMilli(row.ms)
				at, there := slices.BinarySearchFunc(next, row, order)
				switch rnd.IntN(6) {
				case 0, 1, 2:
					err := c.Append(ts, []byte(row.key), []byte(row.value))
					if fits := live(row) && row.ms <= now+width.Milliseconds()+50; !fits {
						require.ErrorIs(t, err, kv.ErrInvalidTTL)
						continue
					}
					require.NoError(t, err)
					if there {
						next[at] = row
					} else {
						next = slices.Insert(next, at, row)
					}
				case 3:
					value, err := c.GetAt(ts, []byte(row.key))
					if there && live(row) {
						require.NoError(t, err)
						require.Equal(t, next[at].value, string(value))
					} else {
						require.ErrorIs(t, err, kv.ErrNotFound)
					}
				case 4:
					require.NoError(t, c.DeleteAt(ts, []byte(row.key)))
					if there {
						next = slices.Delete(next, at, at+1)
					}
				case 5:
					compareTimed(t, rnd, c, next, live)
				}
			}
			if rnd.IntN(8) == 0 {
				before := len(next)
				_, err := c.DropExpired(t.Context())
				require.NoError(t, err)
				stored, err := c.Count()
				require.NoError(t, err)
				gone := before - int(stored)
				for _, r := range next[:gone] { // a prefix, and of expired rows only
					require.False(t, live(r))
				}
				next = next[gone:]
			}
			if rnd.IntN(60) == 0 {
				require.NoError(t, c.Clear())
				next = nil
			}
			if undo {
				return errUndo
			}
			return nil
		})
		if undo {
			require.ErrorIs(t, err, errUndo)
		} else {
			require.NoError(t, err)
			model = next
		}
		if rnd.IntN(10) == 0 {
			clock.move(-time.Duration(rnd.IntN(60)) * time.Millisecond)
		} else {
			clock.move(time.Duration(rnd.IntN(200)) * time.Millisecond)
		}
		if rnd.IntN(30) == 0 {
			width = time.Duration(1+rnd.IntN(700)) * time.Millisecond
			require.NoError(t, db.AlterCF("m", kv.CFOptions{Retention: retention, Partition: width}))
		}
	}
}

var errUndo = errors.New("undo")

// compareTimed compares ScanTime of random bounds, in both directions, and the counts.
func compareTimed(t *testing.T, rnd *rand.Rand, c *kv.CF, model []timedRow, live func(timedRow) bool) {
	t.Helper()
	var want []timedRow
	lo, hi := int64(math.MinInt64), int64(math.MaxInt64)
	var from, to time.Time
	if len(model) > 0 && rnd.IntN(2) == 0 {
		lo = model[rnd.IntN(len(model))].ms + rnd.Int64N(3) - 1
		from = time.UnixMilli(lo)
	}
	if len(model) > 0 && rnd.IntN(2) == 0 {
		hi = model[rnd.IntN(len(model))].ms + rnd.Int64N(3) - 1
		to = time.UnixMilli(hi)
	}
	all := 0
	for _, r := range model {
		if live(r) {
			all++
			if r.ms >= lo && r.ms < hi {
				want = append(want, r)
			}
		}
	}
	reverse := rnd.IntN(2) == 0
	if reverse {
		slices.Reverse(want)
	}
	var got []timedRow
	for k, v := range c.ScanTime(from, to, reverse) {
		got = append(got, timedRow{k.Time.UnixMilli(), string(k.Key), string(v)})
	}
	require.Equal(t, want, got)
	stored, err := c.Count()
	require.NoError(t, err)
	alive, err := c.CountLive()
	require.NoError(t, err)
	require.Equal(t, [2]int{len(model), all}, [2]int{int(stored), int(alive)})
}
