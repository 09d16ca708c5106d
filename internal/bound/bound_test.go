package bound

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// judged stands for a test and notes whether it has failed.
type judged struct {
	testing.TB
	failed bool
}

func (j *judged) Helper()               {}
func (j *judged) Failed() bool          { return j.failed }
func (j *judged) Errorf(string, ...any) { j.failed = true }

var kept []byte

func TestAllocationOutOfBoundsFails(t *testing.T) {
	for name, c := range map[string]struct {
		size   int
		failed bool
	}{
		"within": {1 << 20, false},
		"beyond": {9 << 20, true},
	} {
		t.Run(name, func(t *testing.T) {
			j := &judged{TB: t}
			done := Hold(j, 8<<20)
			kept = make([]byte, c.size)
			done()
			require.Equal(t, c.failed, j.failed)
		})
	}
	kept = nil
}

func TestStoppedWatchNeverBarks(t *testing.T) {
	stop := Watch(Patience)
	require.True(t, stop(), "it was still to bark")
	require.False(t, stop())
}
