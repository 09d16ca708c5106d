package memgroup

import (
	"errors"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestChildThatTakesTooMuchIsKilled, and one that takes little ends as it would elsewhere.
func TestChildThatTakesTooMuchIsKilled(t *testing.T) {
	g, err := New(16 << 20)
	if errors.Is(err, ErrUnsupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, g.Close()) }()
	little := exec.Command("/bin/sh", "-c", "echo $1 $2", "x", "a b", "c")
	g.Wrap(little)
	out, err := little.Output()
	require.NoError(t, err)
	require.Equal(t, "a b c\n", string(out))
	require.Zero(t, g.Kills())

	much := exec.Command("/bin/sh", "-c", `x=0123456789abcdef; while :; do x="$x$x"; done`)
	g.Wrap(much)
	require.Error(t, much.Run())
	require.Positive(t, g.Kills())
}
