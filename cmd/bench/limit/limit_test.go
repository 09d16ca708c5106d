package limit

import (
	"encoding/binary"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestArrayFindsWhatIsThereAndNothingElse(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 100, 1000} {
		row := func(i int) (k, v []byte) {
			k = binary.BigEndian.AppendUint64(nil, uint64(i/3*7919%1000)) // three keys with each head
			k = binary.BigEndian.AppendUint64(k, uint64(i))
			return k, k[12:]
		}
		a := NewArray(n, 16, 4, row)
		for i := range n {
			k, v := row(i)
			require.Equal(t, v, a.Get(k), "%d of %d", i, n)
		}
		k, _ := row(n)
		require.Nil(t, a.Get(k))
	}
}

// TestLogWritesItsSpaceInTurn with every method that this system has.
func TestLogWritesItsSpaceInTurn(t *testing.T) {
	for _, sync := range []bool{false, true} {
		l, err := OpenLog(t.TempDir(), 700, 3, sync)
		require.NoError(t, err)
		size := l.size
		require.Zero(t, size%padding)
		for range 100 {
			require.NoError(t, l.Append())
			require.LessOrEqual(t, l.at, size)
		}
		info, err := os.Stat(l.f.Name())
		require.NoError(t, err)
		require.Equal(t, size, info.Size(), "the file does not grow")
		require.NoError(t, l.Close())
	}
}
