package main

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
)

// testCacheDisk is a disk of so many blocks, all of them full of one byte.
func testCacheDisk(t *testing.T, blocks int, fill byte) *cacheDisk {
	name := filepath.Join(t.TempDir(), "disk.img")
	content := bytes.Repeat([]byte{fill}, blocks*blockSize)
	require.NoError(t, os.WriteFile(name, content, 0o600))
	d, err := newCacheDisk(name)
	require.NoError(t, err)
	return d
}

func imageOf(t *testing.T, s cutState, kept []diskWrite) []byte {
	name := filepath.Join(t.TempDir(), "image.img")
	require.NoError(t, s.image(name, kept))
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	return b
}

// state gives what the disk holds now.
func (d *cacheDisk) state() cutState {
	return cutState{size: d.size, durable: d.durable, pending: d.pending}
}

func TestReadsSeeWhatWasWrittenFlushedOrNot(t *testing.T) {
	d := testCacheDisk(t, 8, 0)
	want := make([]byte, d.size)
	rnd := rand.New(rand.NewPCG(1, 1))
	for i := range 300 {
		off := rnd.IntN(len(want))
		b := bytes.Repeat([]byte{byte(i + 1)}, 1+rnd.IntN(min(3*blockSize, len(want)-off)))
		copy(want[off:], b)
		require.NoError(t, d.write(b, int64(off)))
		if i%10 == 0 {
			d.flush()
		}
		got := make([]byte, len(want))
		d.read(got, 0)
		require.Equal(t, want, got)
	}
	require.Error(t, d.write([]byte{1}, d.size))
	require.Error(t, d.write([]byte{1}, -1))
	b := []byte{1, 1}
	d.read(b, d.size-1)
	require.Equal(t, []byte{want[d.size-1], 0}, b)
	all, _ := d.state().lose("all", rnd)
	require.Equal(t, want, imageOf(t, d.state(), all))
}

// TestPowerCutLosesOnlyWhatWasNotFlushed cuts the power in every way: each sector holds what it
// held at the last flush or what one of the writes since then has brought, flushed blocks are
// whole, and each way does what its name says.
func TestPowerCutLosesOnlyWhatWasNotFlushed(t *testing.T) {
	racetest.NotQuick(t)
	const blocks = untornBlocks + 40
	d := testCacheDisk(t, blocks, 1)
	require.NoError(t, d.write(bytes.Repeat([]byte{2}, blocks/2*blockSize), 0))
	d.flush()
	require.NoError(t, d.write(bytes.Repeat([]byte{3}, blocks*blockSize), 0))
	torn, mixed := 0, 0
	for seed := range uint64(40) {
		for _, way := range cutWays {
			s := d.state()
			kept, loss := s.lose(way, rand.New(rand.NewPCG(seed, 1)))
			require.Equal(t, blocks, loss.Pending)
			require.Equal(t, blocks, len(kept)+loss.Lost)
			b := imageOf(t, s, kept)
			tears, news, gap := 0, 0, false
			for i := range blocks {
				block := b[i*blockSize : (i+1)*blockSize]
				old := byte(1)
				if i < blocks/2 {
					old = 2
				}
				n := bytes.Count(block, []byte{3})
				require.Equal(t, blockSize, n+bytes.Count(block, []byte{old}))
				require.Zero(t, n%sectorSize)
				first := len(block) - len(bytes.TrimLeft(block, "\x03"))
				require.Equal(t, n, first, "a tear keeps the first sectors")
				if n == blockSize {
					news++
					gap = gap || i != news-1
				} else if n > 0 {
					require.GreaterOrEqual(t, i, untornBlocks)
					tears++
				}
			}
			require.Equal(t, loss.Torn, tears)
			switch way {
			case "none":
				require.Zero(t, news)
			case "all":
				require.Equal(t, blocks, news)
			case "prefix":
				require.False(t, gap)
			case "subset":
				if gap {
					mixed++
				}
			case "torn":
				torn += tears
				continue
			}
			require.Zero(t, tears)
		}
	}
	require.NotZero(t, mixed)
	require.NotZero(t, torn)
}

// TestOlderWriteOfABlockMayBeAllThatIsKept: of two writes of a block each is lost for itself.
func TestOlderWriteOfABlockMayBeAllThatIsKept(t *testing.T) {
	d := testCacheDisk(t, 1, 1)
	require.NoError(t, d.write(bytes.Repeat([]byte{2}, sectorSize), 0))
	require.NoError(t, d.write(bytes.Repeat([]byte{3}, sectorSize), 0))
	seen := map[byte]bool{}
	for seed := range uint64(50) {
		kept, _ := d.state().lose("subset", rand.New(rand.NewPCG(seed, 1)))
		seen[imageOf(t, d.state(), kept)[0]] = true
	}
	require.Equal(t, map[byte]bool{1: true, 2: true, 3: true}, seen)
}

// TestCutIsTakenBeforeTheFlush: what a flush makes durable is still pending at a cut before it,
// and a cut that waits for much to lose is content with less in the end.
func TestCutIsTakenBeforeTheFlush(t *testing.T) {
	d := testCacheDisk(t, 4, 0)
	heard := 0
	p := &powerCut{flush: flushOfMuch(1000), done: make(chan error, 1)}
	p.hear = func() error { heard++; return nil }
	d.armed = p
	for i := 0; heard == 0; i++ {
		require.Less(t, i, 100)
		require.NoError(t, d.write([]byte{byte(i)}, 0))
		d.flush()
	}
	require.NoError(t, <-p.done)
	require.Len(t, p.state.pending, 1)
	require.Nil(t, d.armed)

	stop := make(chan struct{})
	close(stop)
	_, err := d.cutAt(&powerCut{writes: 1}, stop)
	require.ErrorIs(t, err, errInterrupted)
	gone := errors.New("gone")
	d.fail(gone)
	_, err = d.cutAt(&powerCut{writes: 1}, nil)
	require.ErrorIs(t, err, gone)
}
