package txn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
)

// backedUp is a backup with the rows that it must hold.
type backedUp struct {
	*Backup
	stream []byte
	rows   map[string]string
	seq    uint64
}

// backupNow makes a backup of tree 9, an increment unless since is nil.
func backupNow(t *testing.T, s *Store, since *backedUp) *backedUp {
	t.Helper()
	o := BackupOptions{}
	if since != nil {
		o.Since = since.Backup
	}
	tx, err := s.Begin(t.Context(), false)
	require.NoError(t, err)
	b := &backedUp{rows: contents(t, tx, 9), seq: tx.Seq()}
	tx.Rollback()
	var to bytes.Buffer
	b.Backup, err = s.Backup(t.Context(), &to, o)
	require.NoError(t, err)
	b.stream = to.Bytes()
	require.EqualValues(t, len(b.stream), b.Bytes)
	require.Equal(t, b.seq, b.Seq)
	return b
}

func readers(chain []*backedUp) (all []io.Reader) {
	for _, b := range chain {
		all = append(all, bytes.NewReader(b.stream))
	}
	return all
}

// requireRestores restores a chain and compares the rows. It returns the store, which is checked and
// closed at the end of the test.
func requireRestores(t *testing.T, o Options, chain ...*backedUp) *Store {
	t.Helper()
	last := chain[len(chain)-1]
	info, err := VerifyBackup(t.Context(), readers(chain)...)
	require.NoError(t, err)
	require.Equal(t, last.ID, info.ID)
	o.FS = vfs.NewMemory()
	require.NoError(t, Restore(t.Context(), "/r.ebb", o, readers(chain)...))
	names, err := o.FS.List("/")
	require.NoError(t, err)
	require.Equal(t, []string{"r.ebb"}, names)
	s := openTest(t, "/r.ebb", o)
	require.True(t, s.Recovery().Clean)
	require.False(t, s.Recovery().Created)
	requireSound(t, s)
	tx := begin(t, s, false)
	defer tx.Rollback()
	require.Equal(t, last.seq, tx.Seq())
	got := contents(t, tx, 9)
	require.Len(t, got, len(last.rows))
	for k, v := range last.rows {
		require.True(t, got[k] == v, "key %s", k)
	}
	return s
}

// churn makes n commits of puts, some of them large, and deletes, and now and then a tree that is
// dropped.
func churn(t *testing.T, s *Store, rnd *rand.Rand, n int) {
	t.Helper()
	for range n {
		update(t, s, func(tx *Tx) {
			if !tx.Exists(9) {
				require.NoError(t, tx.Create(9))
			}
			for range 1 + rnd.IntN(30) {
				key := fmt.Appendf(nil, "key %04d", rnd.IntN(600))
				var err error
				switch rnd.IntN(12) {
				case 0, 1:
					_, err = tx.Delete(9, key)
				case 2:
					_, err = tx.Put(9, key, bytes.Repeat(key, 300+rnd.IntN(2000)), 7)
				case 3:
					if rnd.IntN(6) == 0 {
						_, err = tx.DeleteRange(9, key, append(bytes.Clone(key), 'z'))
					}
				default:
					_, err = tx.Put(9, key, bytes.Repeat(key, 1+rnd.IntN(40)), rnd.Int64N(3))
				}
				require.NoError(t, err)
			}
			if rnd.IntN(10) == 0 {
				if tx.Exists(10) {
					require.NoError(t, tx.Drop(10))
				} else {
					require.NoError(t, tx.Create(10))
					mustPut(t, tx, 10, []byte("k"), make([]byte, 3000), 0)
				}
			}
		})
		if rnd.IntN(8) == 0 {
			require.NoError(t, s.Checkpoint(t.Context()))
		}
	}
}

// TestBackupsRestore makes a full backup and increments of a store that changes between them, also
// across its closing, and restores what each of them must hold: from the chain that it ends.
func TestBackupsRestore(t *testing.T) {
	racetest.OneGoroutine(t)
	for name, pageSize := range map[string]int{"4096": 4096, "65536": 65536} {
		t.Run(name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(1, uint64(pageSize)))
			disk := vfs.NewMemory()
			o := testOptions(disk)
			o.PageSize, o.SmallGroups = pageSize, true
			s := mustOpen(t, o)
			var chains [][]*backedUp
			for i := range racetest.Sample(40, 10) {
				if i%7 == 6 {
					require.NoError(t, s.Close())
					s = mustOpen(t, o)
				}
				if i%7 != 6 || i%2 == 0 { // else the first change of a session follows the backup
					churn(t, s, rnd, rnd.IntN(30))
				}
				if i%9 == 0 {
					churn(t, s, rnd, 1)
					chains = append(chains, []*backedUp{backupNow(t, s, nil)})
				} else {
					base := chains[rnd.IntN(len(chains))]
					if len(chains) > 6 {
						base = chains[len(chains)-1-rnd.IntN(6)]
					}
					next := backupNow(t, s, base[len(base)-1])
					chains = append(chains, append(base[:len(base):len(base)], next))
				}
				requireRestores(t, o, chains[len(chains)-1]...)
			}
			requireSound(t, s)
			require.NoError(t, s.Close())
		})
	}
}

// TestRestoredStoreGoesOn: the chain of a restored store continues the one that it was restored
// from, and that of the original store does not mix with it.
func TestRestoredStoreGoesOn(t *testing.T) {
	rnd := rand.New(rand.NewPCG(2, 2))
	o := testOptions(vfs.NewMemory())
	s := openTest(t, "/a.ebb", o)
	churn(t, s, rnd, 20)
	full := backupNow(t, s, nil)
	churn(t, s, rnd, 5)
	second := backupNow(t, s, full)
	other := testOptions(nil)
	other.Rand = rnd.Uint64
	r := requireRestores(t, other, full, second)
	churn(t, r, rnd, 20)
	third := backupNow(t, r, second)
	requireRestores(t, o, full, second, third)
	fromFull := backupNow(t, r, full)
	requireRestores(t, o, full, fromFull)

	churn(t, s, rnd, 20)
	_, err := s.Backup(t.Context(), io.Discard, BackupOptions{Since: third.Backup})
	require.ErrorIs(t, err, ErrBackupBase)
	mine := backupNow(t, s, second)
	requireRestores(t, o, full, second, mine)
	after := backupNow(t, r, third)
	_, err = VerifyBackup(t.Context(), readers([]*backedUp{full, second, mine, after})...)
	require.ErrorIs(t, err, ErrBackupBase)
}

// TestIncrementsOfAnotherHistoryAreRefused: of another store, and of a copy of the file that has
// reached the same epochs by other commits.
func TestIncrementsOfAnotherHistoryAreRefused(t *testing.T) {
	disk := vfs.NewMemory()
	o := testOptions(disk)
	s := mustOpen(t, o)
	churn(t, s, rand.New(rand.NewPCG(3, 3)), 10)
	full := backupNow(t, s, nil)
	require.NoError(t, s.Close())
	copied := vfs.NewMemory()
	copyFile(t, disk, copied, "/a.ebb")

	s = openTest(t, "/a.ebb", o)
	twinOptions := testOptions(copied)
	twinOptions.Rand = rand.New(rand.NewPCG(4, 4)).Uint64
	twin := openTest(t, "/a.ebb", twinOptions)
	for _, one := range []*Store{s, twin} {
		update(t, one, func(tx *Tx) {
			mustPut(t, tx, 9, []byte("twin"), fmt.Append(nil, one == twin), 0)
		})
	}
	inc, twinInc := backupNow(t, s, full), backupNow(t, twin, full)
	require.Equal(t, inc.ID.Epoch, twinInc.ID.Epoch)
	requireRestores(t, o, full, inc)
	requireRestores(t, o, full, twinInc)
	_, err := twin.Backup(t.Context(), io.Discard, BackupOptions{Since: inc.Backup})
	require.ErrorIs(t, err, ErrBackupBase)
	third := backupNow(t, twin, twinInc)
	o.FS = vfs.NewMemory()
	for name, chain := range map[string][]*backedUp{
		"twin": {full, inc, third}, "no full one": {inc}, "wrong order": {inc,
			full}, "two full ones": {full, full},
		"the middle is missing": {full, third}, "twice": {full, inc, inc}, "none": nil,
	} {
		_, err := VerifyBackup(t.Context(), readers(chain)...)
		require.ErrorIs(t, err, ErrBackupBase, name)
		require.ErrorIs(t, Restore(t.Context(), "/r.ebb", o, readers(chain)...), ErrBackupBase, name)
	}
	names, err := o.FS.List("/")
	require.NoError(t, err)
	require.Empty(t, names)

	strange := openTest(t, "/b.ebb", twinOptions)
	_, err = strange.Backup(t.Context(), io.Discard, BackupOptions{Since: full.Backup})
	require.ErrorIs(t, err, ErrBackupBase)
	for range 32 {
		backupNow(t, twin, nil)
	}
	_, err = twin.Backup(t.Context(), io.Discard, BackupOptions{Since: third.Backup})
	require.ErrorIs(t, err, ErrBackupBase, "forgotten")
}

// smallBackup is a full backup of a few pages, one of them of an extent.
func smallBackup(t *testing.T) *backedUp {
	t.Helper()
	s := openTest(t, "/a.ebb", testOptions(vfs.NewMemory()))
	update(t, s, func(tx *Tx) {
		require.NoError(t, tx.Create(9))
		for i := range 3 {
			mustPut(t, tx, 9, fmt.Appendf(nil, "key %d", i), make([]byte, 10+i*2500), int64(i))
		}
	})
	return backupNow(t, s, nil)
}

// TestDamagedBackupIsCorrupt: with any byte changed, cut anywhere, with more bytes behind it.
func TestDamagedBackupIsCorrupt(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	b := smallBackup(t)
	o := testOptions(crashfs.New(crashfs.Options{Untraced: true}))
	requireCorrupt := func(stream []byte, restore bool, what string, at int) {
		_, err := VerifyBackup(t.Context(), bytes.NewReader(stream))
		require.ErrorIs(t, err, badfile.ErrCorrupt, "%s %d", what, at)
		if !restore {
			return
		}
		err = Restore(t.Context(), "/r.ebb", o, bytes.NewReader(stream))
		require.ErrorIs(t, err, badfile.ErrCorrupt, "%s %d", what, at)
		names, err := o.FS.List("/")
		require.NoError(t, err)
		require.Empty(t, names)
	}
	for i := range b.stream {
		flip := byte(1) << (i % 8)
		b.stream[i] ^= flip
		requireCorrupt(b.stream, i%racetest.Sample(37, 997) == 0, "byte", i)
		b.stream[i] ^= flip
		requireCorrupt(b.stream[:i], i%racetest.Sample(37, 997) == 0, "cut", i)
	}
	requireCorrupt(append(bytes.Clone(b.stream), 0), true, "longer", 1)
	requireCorrupt(append(bytes.Clone(b.stream), b.stream...), true, "twice", 0)
	requireRestores(t, o, b)
}

// slowWriter calls beside before each write.
type slowWriter struct {
	bytes.Buffer
	beside func()
}

func (w *slowWriter) Write(b []byte) (int, error) {
	w.beside()
	return w.Buffer.Write(b)
}

// TestBackupBesideCommits: while the stream is written, commits replace every page and checkpoints
// reuse all that may be reused. Afterwards the pages that the backup kept are free.
func TestBackupBesideCommits(t *testing.T) {
	o := testOptions(vfs.NewMemory())
	rnd := rand.New(rand.NewPCG(5, 5))
	s := openTest(t, "/a.ebb", o)
	churn(t, s, rnd, 40)
	var last *backedUp
	for range 4 {
		now := backupNow(t, s, last)
		w := &slowWriter{}
		busy := func() {
			churn(t, s, rnd, 12)
			require.NoError(t, s.Checkpoint(t.Context()))
		}
		w.beside = busy
		o := BackupOptions{}
		if last != nil {
			o.Since = last.Backup
		}
		b, err := s.Backup(t.Context(), w, o)
		require.NoError(t, err)
		now.Backup, now.stream = b, w.Bytes()
		if last != nil {
			requireRestores(t, testOptions(nil), last, now)
		} else {
			requireRestores(t, testOptions(nil), now)
			last = now
		}
		requireSound(t, s)
	}
	require.NoError(t, s.Checkpoint(t.Context()))
	require.Zero(t, s.Stats().PinnedBytes)
}

// TestBackupThatEnds early, by its context, its writer, or a Shutdown, keeps no page and no lock.
func TestBackupThatEnds(t *testing.T) {
	o := testOptions(vfs.NewMemory())
	s := mustOpen(t, o)
	churn(t, s, rand.New(rand.NewPCG(6, 6)), 20)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.Backup(ctx, &slowWriter{beside: cancel}, BackupOptions{})
	require.ErrorIs(t, err, context.Canceled)
	broken := errors.New("broken pipe")
	_, err = s.Backup(t.Context(), writerFunc(func([]byte) (int, error) { return 0, broken }),
		BackupOptions{})
	require.ErrorIs(t, err, broken)
	require.Panics(t, func() {
		_, _ = s.Backup(t.Context(), &slowWriter{beside: func() { panic("no") }}, BackupOptions{})
	})
	churn(t, s, rand.New(rand.NewPCG(6, 7)), 5)
	require.NoError(t, s.Checkpoint(t.Context()))
	require.Zero(t, s.Stats().PinnedBytes)
	_, err = s.Backup(t.Context(), &slowWriter{beside: func() {
		require.ErrorIs(t, s.Close(), ErrTxnsOpen)
		require.NoError(t, s.Abandon())
	}}, BackupOptions{})
	require.ErrorIs(t, err, ErrClosed)
	_, err = s.Backup(t.Context(), io.Discard, BackupOptions{})
	require.ErrorIs(t, err, ErrClosed)
}

type writerFunc func(b []byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// TestCrashOfBackup stops the disk after each operation of a backup and of the commits behind it. The
// store has all commits, and an increment since the backup restores exactly, or is refused.
func TestCrashOfBackup(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	for _, changed := range []bool{false, true} {
		t.Run(fmt.Sprintf("changed=%v", changed), func(t *testing.T) {
			disk := crashfs.New(crashfs.Options{})
			o := testOptions(disk)
			s := mustOpen(t, o)
			rnd := rand.New(rand.NewPCG(7, 7))
			churn(t, s, rnd, 10)
			first := backupNow(t, s, nil)
			if changed {
				churn(t, s, rnd, 2)
			}
			from := disk.Len()
			second := backupNow(t, s, first)
			done := disk.Len()
			rows := len(rowsOfTree(t, s, 9))
			churn(t, s, rnd, 3)
			require.NoError(t, s.Checkpoint(t.Context()))
			bases := [2]int{}
			for im := range disk.Images(crashfs.ImageOptions{
				Profiles: crashfs.Kill | crashfs.None | crashfs.Prefix | crashfs.Dirs, From: from,
			}) {
				o := testOptions(im.Disk(crashfs.Options{Untraced: true}))
				again := mustOpen(t, o)
				if im.Point <= done {
					require.Len(t, rowsOfTree(t, again, 9), rows)
				}
				for i, chain := range [][]*backedUp{{first}, {first, second}} {
					_, err := again.Backup(t.Context(), io.Discard, BackupOptions{Since: chain[i].Backup})
					if im.Point < done && i == 1 && errors.Is(err, ErrBackupBase) {
						continue
					}
					require.NoError(t, err, "%d %s", im.Point, im.Desc())
					bases[i]++
					inc := backupNow(t, again, chain[i])
					requireRestores(t, o, append(chain, inc)...)
				}
				requireSound(t, again)
				require.NoError(t, again.Close())
			}
			require.Positive(t, bases[0])
			require.Positive(t, bases[1])
		})
	}
}
