package txn

import (
	"math/rand"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
)

func TestReadersUseSlotsBeyondTheFirstBlock(t *testing.T) {
	var r snapshots
	var visible atomic.Pointer[version]
	visible.Store(&version{serial: 5})
	var slots []*snapshotSlot
	for i := range 3*slotsPerBlock + 7 {
		v, s := r.acquire(&visible, new(pager.UndoLog), int64(i))
		require.Equal(t, uint64(5), v.serial)
		require.NotContains(t, slots, s)
		slots = append(slots, s)
	}
	_, brief := r.acquire(&visible, new(pager.UndoLog), noAge)
	slots = append(slots, brief)
	n, oldest := r.stats(1000)
	require.Equal(t, len(slots), n)
	require.Equal(t, int64(1000), oldest.Nanoseconds())
	pin := r.pin(&version{serial: 3}, 10)
	held := r.held(nil)
	require.Len(t, held, len(slots)+1)
	require.True(t, slices.IsSorted(held))
	require.Equal(t, uint64(3), held[0])
	for _, s := range append(slots, pin) {
		s.release()
	}
	n, _ = r.stats(1000)
	require.Zero(t, n)
	require.Empty(t, r.held(nil))
}

// TestAPinnedVersionIsNeverReclaimed runs readers beside a writer that publishes versions and then
// scans the pins: the scan must see each reader that hold returned to until the reader releases.
func TestAPinnedVersionIsNeverReclaimed(t *testing.T) {
	var r snapshots
	var visible atomic.Pointer[version]
	visible.Store(&version{serial: 1})
	const goroutines = 100 // more than one block has slots
	// floor is the serial below which the writer has found no reader and would have reclaimed pages.
	var floor atomic.Uint64
	var stop atomic.Bool
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rnd := rand.New(rand.NewSource(int64(g)))
			for !stop.Load() {
				v, s := r.acquire(&visible, new(pager.UndoLog), 0)
				for range rnd.Intn(4) {
					if f := floor.Load(); f > v.serial {
						t.Errorf("version %d is pinned, everything below %d was reclaimed", v.serial, f)
					}
				}
				s.release()
			}
		}()
	}
	var buf []uint64
	for serial := uint64(2); serial < 3000 && !t.Failed(); serial++ {
		visible.Store(&version{serial: serial})
		buf = r.held(buf[:0])
		low := serial
		if len(buf) > 0 {
			low = min(low, buf[0])
		}
		floor.Store(max(floor.Load(), low))
	}
	stop.Store(true)
	wg.Wait()
}

func TestSnapshotsStayUnchangedWhileManyBegin(t *testing.T) {
	racetest.NotQuick(t)
	o := testOptions(vfs.NewMemory())
	o.Inline = false
	s := openTest(t, "/a.ebb", o)
	put := func(n byte) {
		update(t, s, func(tx *Tx) {
			for i := range 50 {
				mustPut(t, tx, CatalogTree, []byte{byte(i)}, []byte{n}, 0)
			}
		})
	}
	put(0)
	puts := 60
	if racetest.Enabled {
		puts /= 4
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	for g := range 80 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for !stop.Load() && !t.Failed() {
				tx, err := s.Begin(nil, false)
				if err != nil {
					t.Error(err)
					return
				}
				var first []byte
				for i := range 50 {
					v, _, found, err := tx.Get(CatalogTree, []byte{byte((i + g) % 50)})
					if err != nil || !found || first != nil && v[0] != first[0] {
						t.Errorf("a snapshot shows two states: %v %v %v", v, first, err)
						break
					}
					first = v
				}
				tx.Rollback()
			}
		}()
	}
	for n := range puts {
		put(byte(n))
	}
	stop.Store(true)
	wg.Wait()
	s.checkpointer.background.wait() // A checkpoint holds the state that it writes as a reader does.
	require.Zero(t, s.Stats().Readers)
}

// TestPagesOfASnapshotAreFreedWhenItEnds churns under an old snapshot: the snapshot stays unchanged,
// the stats count pinned pages, and all of them are free again afterwards.
func TestPagesOfASnapshotAreFreedWhenItEnds(t *testing.T) {
	s := openTest(t, "/a.ebb", testOptions(vfs.NewMemory()))
	churn := func(n byte) {
		update(t, s, func(tx *Tx) {
			for i := range 300 {
				mustPut(t, tx, CatalogTree, []byte{byte(i >> 8), byte(i)}, make([]byte, 100+int(n)), 0)
			}
		})
	}
	churn(0)
	old := begin(t, s, false)
	before := contents(t, old, CatalogTree)
	for n := range 20 {
		churn(byte(n))
		if n%5 == 0 {
			require.NoError(t, s.Checkpoint(nil))
		}
	}
	st := s.Stats()
	require.Equal(t, 1, st.Readers)
	require.Positive(t, st.PinnedBytes)
	require.Equal(t, before, contents(t, old, CatalogTree))
	old.Rollback()
	for range 3 {
		churn(1)
		require.NoError(t, s.Checkpoint(nil))
	}
	st = s.Stats()
	require.Zero(t, st.PinnedBytes)
	require.Zero(t, st.Readers)
}
