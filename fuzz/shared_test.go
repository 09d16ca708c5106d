package fuzz

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/kv"
)

// sharers count with one-shot writes, each its own key and all of them one more, so that writes
// meet and share a commit; or each alone, in transactions, so that commits meet and share a write
// of the log, or two are on their way at a time.
type sharers struct {
	db    *kv.DB
	disk  *crashfs.Disk
	alone bool
	own   [8]int // acknowledged count of each

	mu   sync.Mutex
	told []told // guarded by mu
}

// told is an acknowledgement: key had this count when the disk had done so many operations.
type told struct {
	at, count int
	key       string
}

func sharedKey(id int) string { return fmt.Sprint("sharer", id) }

const commonKey = "all"

// run counts until each has counted n times. The first writes of all meet behind a transaction.
func (s *sharers) run(n int) error {
	hold, err := s.db.Begin(context.Background(), true)
	if err != nil {
		return err
	}
	errs := make([]error, len(s.own))
	ids := make(chan uint64)
	var done sync.WaitGroup
	for id := range s.own {
		done.Go(func() {
			ids <- goroutineID()
			for range n {
				if errs[id] = errors.Join(s.count(sharedKey(id), &s.own[id]),
					s.count(commonKey, nil)); errs[id] != nil {
					return
				}
			}
		})
	}
	for range s.own {
		for id := <-ids; !waits(goroutines()[id]); {
			runtime.Gosched()
		}
	}
	err = hold.Rollback()
	done.Wait()
	return errors.Join(append(errs, err)...)
}

// count adds one to a key. No other client adds to one whose count is known.
func (s *sharers) count(key string, known *int) error {
	v, err := s.increment([]byte(key))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, told{s.disk.Len(), int(v), key})
	if known == nil {
		return nil
	}
	if *known++; int(v) != *known {
		return fmt.Errorf("%s is %d, counted %d times", key, v, *known)
	}
	return nil
}

func (s *sharers) increment(key []byte) (v int64, err error) {
	if !s.alone {
		return s.db.Increment(key, 1, 0)
	}
	err = s.db.Update(func(tx *kv.Tx) (err error) {
		v, err = tx.Increment(key, 1, 0)
		return err
	})
	return v, err
}

// judge holds an image of the disk at some operation against what was told before it: no count is
// below what was acknowledged, and none above what was ever asked for.
func (s *sharers) judge(im *crashfs.Image, at, n int) error {
	db, err := openHistory(im.Disk(crashfs.Options{Untraced: true}), uint64(at))
	if err != nil {
		return err
	}
	least := map[string]int{}
	for _, t := range s.told {
		if t.at <= at {
			least[t.key] = max(least[t.key], t.count)
		}
	}
	sum, all := 0, 0
	for id := -1; id < len(s.own); id++ {
		key, most := commonKey, len(s.own)*n
		if id >= 0 {
			key, most = sharedKey(id), n
		}
		v, err := db.Get([]byte(key))
		if errors.Is(err, kv.ErrNotFound) {
			v, err = make([]byte, 8), nil
		}
		if err != nil {
			return err
		}
		count := int(binary.BigEndian.Uint64(v))
		if count < least[key] || count > most {
			return fmt.Errorf("%s is %d at operation %d, %d were acknowledged of %d", key, count, at,
				least[key], most)
		}
		if id < 0 {
			all = count
		} else {
			sum += count
		}
	}
	// Everyone counts its own key first: what the disk shows is in that order too.
	if all > sum || sum > all+len(s.own) {
		return fmt.Errorf("operation %d: %d counts of all, %d of each", at, all, sum)
	}
	return errors.Join(sound(db), db.Close())
}

// TestSharedCommitsSurviveCrashes cuts the power, and kills the process, at moments of a run in
// which one-shot writes share commits and syncs.
func TestSharedCommitsSurviveCrashes(t *testing.T) {
	runs, images, n := 12, 0, 40
	if testing.Short() {
		runs = 3
	}
	for seed := range uint64(runs) {
		s := &sharers{disk: crashfs.New(crashfs.Options{Direct: seed%2 == 0})}
		var err error
		s.db, err = openHistory(s.disk, seed)
		require.NoError(t, err)
		begun := s.disk.Len()
		require.NoError(t, s.run(n), "seed %d", seed)
		require.Len(t, s.told, 2*n*len(s.own))
		require.Less(t, s.db.Stats().Commits, uint64(len(s.told)), "no two writes met")
		images += s.crash(t, begun, n, rand.New(rand.NewPCG(seed, 77)))
	}
	require.Greater(t, images, runs*24)
}

// TestGroupedCommitsSurviveCrashes is the same for commits of transactions, which share writes of the
// log with Direct writes.
func TestGroupedCommitsSurviveCrashes(t *testing.T) {
	runs, images, n := 12, 0, 40
	if testing.Short() {
		runs = 3
	}
	for seed := range uint64(runs) {
		s := &sharers{alone: true, disk: crashfs.New(crashfs.Options{Direct: true, Landing: runtime.Gosched})}
		var err error
		s.db, err = openHistory(s.disk, 2*seed)
		require.NoError(t, err)
		begun := s.disk.Len()
		require.NoError(t, s.run(n), "seed %d", seed)
		images += s.crash(t, begun, n, rand.New(rand.NewPCG(seed, 78)))
	}
	require.Greater(t, images, runs*24)
}

// crash cuts the power, and kills the process, at moments between begun and now, and judges what is
// left. It closes the store.
func (s *sharers) crash(t *testing.T, begun, n int, rnd *rand.Rand) (images int) {
	end := s.disk.Len()
	require.NoError(t, s.db.Close())
	for range 12 {
		at := begun + rnd.IntN(end-begun+1)
		for _, profile := range []crashfs.Profile{crashfs.None, crashfs.Kill, crashfs.Prefix,
			crashfs.Reorder, crashfs.Torn512} {
			for im := range s.disk.Images(crashfs.ImageOptions{Profiles: profile, From: at, To: at +
				1, Random: 4, Seed: rnd.Uint64()}) {
				images++
				require.NoError(t, s.judge(im, at, n))
				if profile != crashfs.Reorder {
					break // One of them; crashtest enumerate tries them all.
				}
			}
		}
	}
	return images
}
