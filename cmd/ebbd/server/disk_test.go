package server

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/kv"
)

// onDisk has the store of a server on a simulated disk.
func onDisk(disk *crashfs.Disk) Options {
	return Options{Dir: "dir", openStore: func(path string, o *kv.Options) (*kv.DB, error) {
		return openfs.OpenTuned(disk, path, o, openfs.Tuning{})
	}}
}

// TestALostDiskEndsWritesAndNoReads: a disk fails while the server runs. The write that meets the
// failure and all later ones are refused, reads go on; a start on a disk that fails ends with the
// error; a start on the disk that is back has every acknowledged write.
func TestALostDiskEndsWritesAndNoReads(t *testing.T) {
	for _, kind := range []crashfs.Kind{crashfs.KindWrite | crashfs.KindDirect, crashfs.KindSyncs} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			disk := crashfs.New(crashfs.Options{})
			o := onDisk(disk)
			s, err := Open(o)
			require.NoError(t, err)
			c := serve(t, s).client()
			require.Equal(t, "OK", c.line("SET a 1"))
			lost := disk.Inject(crashfs.Fault{Kinds: kind, Sticky: true})
			require.Contains(t, c.line("SET b 1"), "MISCONF")
			require.Contains(t, c.line("DEL a"), "MISCONF an earlier write to the disk failed")
			require.Equal(t, `"1"`, c.line("GET a"))
			require.Contains(t, c.line("INFO persistence"), "aof_last_write_status:err")
			require.ErrorContains(t, s.Shutdown(context.Background()), "input/output error")

			lost.Disarm()
			failing := disk.Inject(crashfs.Fault{Kinds: crashfs.KindRead, Sticky: true})
			_, err = Open(o)
			require.ErrorContains(t, err, "open dir/ebbd.ebb")
			require.ErrorContains(t, err, "input/output error")
			failing.Disarm()
			s, err = Open(o)
			require.NoError(t, err)
			c = serve(t, s).client()
			require.Equal(t, `"1"`, c.line("GET a"))
			require.Equal(t, "OK", c.line("SET b 2"))
			require.NoError(t, s.Shutdown(context.Background()))
		})
	}
}

// TestOneWriteWithoutSpaceFailsNoOther: a command that needs more than the disk has was part of a turn
// with others, and the commit failed for all of them, deletes included.
func TestOneWriteWithoutSpaceFailsNoOther(t *testing.T) {
	s := start(t, Options{MaxBytes: 8 << 20})
	clients := []*client{s.client(), s.client(), s.client()}
	require.Equal(t, "OK", clients[0].line("SET a 1"))
	s.together(clients, []string{"SET", "small", "1"},
		[]string{"SET", "large", string(make([]byte, 12<<20))}, []string{"DEL", "a"})
	require.Equal(t, "OK", clients[0].receive())
	require.Contains(t, clients[1].receive(), "OOM")
	require.Equal(t, "1", clients[2].receive())
	require.Equal(t, `["small"]`, clients[0].line("KEYS *"))
}
