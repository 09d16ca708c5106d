package txn

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
)

// TestCompactOnAFullDisk that commits have filled: moves need no space of the disk, and what a killed
// process leaves opens there.
func TestCompactOnAFullDisk(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, fill := range []bool{false, true} {
		compactOnAFullDisk(t, fill)
	}
}

func compactOnAFullDisk(t *testing.T, fill bool) {
	disk := crashfs.New(crashfs.Options{})
	o := compactOptions(true)
	o.FS = disk
	h := newHoleyStore(t, o)
	disk.SetCapacity(disk.Used())
	defer disk.SetCapacity(0)
	filled := untilFull(t, h.Store, func(tx *Tx, i int) error {
		_, err := tx.Put(9, fmt.Appendf(nil, "x%04d", i), make([]byte, 3000), 0)
		return err
	})
	require.Greater(t, filled, 100)
	for i := range filled {
		key := fmt.Sprintf("x%04d", i)
		h.rows[9][key] = string(make([]byte, 3000))
		if i%4 > 0 {
			h.delete(9, key)
		}
	}
	_, err := h.Compact(t.Context(), CompactOptions{StepPages: 2, Fill: fill, Progress: func(uint64, uint64) {
		for key := range h.rows[10] {
			h.delete(10, key)
			return
		}
	}})
	require.NoError(t, err)
	h.requireRows(h.rows)
	killed := &holeyStore{Store: openStillFull(t, disk, o), t: t}
	killed.requireRows(h.rows)
	require.NoError(t, killed.Close())
}

func (h *holeyStore) delete(id TreeID, key string) {
	update(h.t, h.Store, func(tx *Tx) {
		_, err := tx.Delete(id, []byte(key))
		require.NoError(h.t, err)
	})
	delete(h.rows[id], key)
}

// TestEveryFailedOperationOfACompact, for lack of space or another reason: the store has failed, or
// is whole; another session finds all rows.
func TestEveryFailedOperationOfACompact(t *testing.T) {
	racetest.OneGoroutine(t)
	disk := crashfs.New(crashfs.Options{})
	o := compactOptions(true)
	o.FS, o.Rand = disk, nil
	h := newHoleyStore(t, o)
	image := imageOf(t, disk)
	failures := 0
	for n := 0; ; n += racetest.Sample(29, 53) {
		disk := image.Disk(crashfs.Options{})
		o.FS = disk
		s := mustOpen(t, o)
		fault := crashfs.Fault{N: n, Kinds: crashfs.KindAll &^ crashfs.KindClose}
		if n%2 == 0 {
			fault.Err = vfs.ErrNoSpace
		}
		in := disk.Inject(fault)
		_, err := s.Compact(t.Context(), CompactOptions{StepPages: 5, Fill: n%3 == 0})
		in.Disarm()
		if err != nil {
			failures++
		}
		again := &holeyStore{Store: s, t: t}
		again.requireRows(h.rows)
		if err := s.Close(); err != nil {
			require.ErrorIs(t, err, ErrFailed)
		}
		again.Store = openTest(t, "/a.ebb", o)
		again.requireRows(h.rows)
		if in.Fired() == 0 {
			break
		}
	}
	require.Greater(t, failures, 2)
}
