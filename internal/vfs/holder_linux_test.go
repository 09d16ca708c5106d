package vfs

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestHolderOfALockIsFoundByDeviceAndInode(t *testing.T) {
	table := "1: POSIX  ADVISORY  WRITE 11 fd:01:5678 0 EOF\n" +
		"2: FLOCK  ADVISORY  WRITE 12 fd:02:5678 0 EOF\n" +
		"3: FLOCK  ADVISORY  WRITE 0 fd:01:5678 0 EOF\n" +
		"4: FLOCK  ADVISORY  READ 14 fd:01:5678 0 EOF\n" +
		"4: -> FLOCK  ADVISORY  WRITE 15 fd:01:5678 0 EOF\n" +
		"broken\n\n5: FLOCK ADVISORY WRITE x fd:01:9 0 EOF\n"
	id := FileID{Dev: unix.Mkdev(0xfd, 1), Ino: 5678}
	pid, ok := holderOf(table, id)
	require.True(t, ok)
	require.Equal(t, 14, pid)
	for _, other := range []FileID{{Dev: id.Dev, Ino: 5}, {Dev: id.Dev, Ino: 9},
		{Dev: unix.Mkdev(0xfd, 3), Ino: 5678}} {
		_, ok := holderOf(table, other)
		require.False(t, ok)
	}
}
