package txn

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
)

// requireAccounted requires that each page is used by the newest version, free, or in one entry of
// the reclaimer. No transaction is open.
func requireAccounted(t *testing.T, s *Store) {
	t.Helper()
	s.checkpointer.background.wait()
	require.NoError(t, s.lockWriter(t.Context()))
	defer s.unlockWriter()
	waiting, q := map[pager.Pgid]bool{}, s.reclaimer
	note := func(f deferredFree) {
		for id := f.id; id < f.id+pager.Pgid(f.n); id++ {
			used, err := s.pg.Alloc.InUse(id)
			if err != nil || used || waiting[id] {
				require.Fail(t, "a page waits, and is in use or waits twice", "page %d: %v", id, err)
			}
			waiting[id] = true
		}
	}
	for o := range q.waiting {
		for f := range q.waiting[o].all() {
			note(f)
		}
	}
	pins := int64(0)
	for _, entries := range q.pins {
		for _, f := range entries {
			note(f)
			pins += int64(f.n)
		}
	}
	require.Equal(t, pins, q.pinnedPages)
	require.EqualValues(t, s.pg.Alloc.Unfree(), len(waiting), "a page is lost, or free and waits")
}

// TestEveryPageIsUsedFreeOrWaits: rows and large values are overwritten and deleted, trees dropped,
// and checkpoints run, beside snapshots of all of these. No page is lost, and when the snapshots
// have ended a checkpoint frees all.
func TestEveryPageIsUsedFreeOrWaits(t *testing.T) {
	racetest.OneGoroutine(t)
	racetest.NotQuick(t)
	for name, cache := range map[string]int64{"frames": 16 << 20, "deltas": 512 << 10} {
		t.Run(name, func(t *testing.T) {
			s := openTest(t, "/a.ebb", Options{
				FS: vfs.NewMemory(), CacheBytes: cache, CheckpointBytes: 1 << 30,
				SegmentSize: 64 << 10,
			})
			p := &deltaTest{t, s, map[string]string{}, rand.New(rand.NewPCG(1, 2))}
			update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
			p.put(6_000)
			require.NoError(t, s.Checkpoint(t.Context()))
			churnBesideSnapshots(p)
			p.put(1)
			require.NoError(t, s.Checkpoint(t.Context()))
			for o := range s.reclaimer.waiting {
				require.Zero(t, s.reclaimer.waiting[o].len(), "obstacle %d", o)
			}
			require.Zero(t, len(s.reclaimer.pins)+len(s.reclaimer.detached))
			requireAccounted(t, s)
			tx := p.reader()
			defer tx.Rollback()
			p.requireRows(tx, p.rows)
		})
	}
}

// churnBesideSnapshots changes the store, and requires after each turn that all pages are accounted
// for and that a snapshot reads what it read at first.
func churnBesideSnapshots(p *deltaTest) {
	t, s := p.t, p.s
	type held struct {
		tx   *Tx
		rows map[string]string
	}
	var readers []held
	most := map[string]int{}
	for turn := range 42 {
		switch turn % 6 {
		case 0, 1, 2:
			p.put(300)
		case 3:
			update(t, s, func(tx *Tx) {
				mustPut(t, tx, CatalogTree, []byte("large"), make([]byte, 20_000+turn*500), 0)
			})
		case 4:
			id := TreeID(100 + turn)
			update(t, s, func(tx *Tx) {
				require.NoError(t, tx.Create(id))
				for i := range 500 {
					mustPut(t, tx, id, fmt.Appendf(nil, "%05d", i), make([]byte, 50), 0)
				}
			})
			update(t, s, func(tx *Tx) { require.NoError(t, tx.Drop(id)) })
		case 5:
			checkpointBy(t, s, func() { p.put(50) }, func() {})
		}
		requireAccounted(t, s)
		if len(readers) < 6 {
			readers = append(readers, held{p.reader(), maps.Clone(p.rows)})
		}
		if i := p.rnd.IntN(9); i < len(readers) {
			p.requireRows(readers[i].tx, readers[i].rows)
			readers[i].tx.Rollback()
			readers = append(readers[:i], readers[i+1:]...)
		}
		for o := range s.reclaimer.waiting {
			name := fmt.Sprint(obstacle(o))
			most[name] = max(most[name], s.reclaimer.waiting[o].len())
		}
		most["pins"] = max(most["pins"], len(s.reclaimer.pins))
	}
	require.NotZero(t, most["pins"])
	require.NotZero(t, most[fmt.Sprint(uncaptured)])
	if s.o.CacheBytes < 1<<20 {
		require.NotZero(t, most[fmt.Sprint(unmerged)])
	}
	for _, r := range readers {
		p.requireRows(r.tx, r.rows)
		r.tx.Rollback()
	}
}
