package raftstore_test

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	raftbench "github.com/hashicorp/raft/bench"
	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/adapters/raftstore"
	"github.com/ebbkv/ebb/kv"
)

func open(t testing.TB, path string) (*kv.DB, *raftstore.Store) {
	db, err := kv.Open(path, &kv.Options{Durability: kv.NoSync})
	require.NoError(t, err)
	s, err := raftstore.New(db, "raft")
	require.NoError(t, err)
	return db, s
}

func openTest(t testing.TB) *raftstore.Store {
	db, s := open(t, filepath.Join(t.TempDir(), "raft.ebb"))
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return s
}

func TestAnEntryComesBackAsItWasStored(t *testing.T) {
	s := openTest(t)
	entries := []*raft.Log{
		{Index: 1},
		{Index: 2, Term: math.MaxUint64, Type: raft.LogConfiguration, Data: []byte("data")},
		{Index: 3, Extensions: []byte("ext"), AppendedAt: time.Unix(0, -1)},
		{Index: math.MaxUint64, Term: 7, Data: make([]byte, 100_000), Extensions: []byte{0}},
	}
	require.NoError(t, s.StoreLogs(entries))
	for _, want := range entries {
		got := raft.Log{Data: []byte("of before"), Term: 99}
		require.NoError(t, s.GetLog(want.Index, &got))
		require.Equal(t, want.Term, got.Term)
		require.Equal(t, want.Type, got.Type)
		require.Equal(t, string(want.Data), string(got.Data))
		require.Equal(t, string(want.Extensions), string(got.Extensions))
		require.True(t, want.AppendedAt.Equal(got.AppendedAt))
	}
	require.ErrorIs(t, s.GetLog(4, new(raft.Log)), raft.ErrLogNotFound)
}

func TestDeleteRangeTakesBothEnds(t *testing.T) {
	s := openTest(t)
	ends := func(first, last uint64) {
		got, err := s.FirstIndex()
		require.NoError(t, err)
		require.Equal(t, first, got)
		got, err = s.LastIndex()
		require.NoError(t, err)
		require.Equal(t, last, got)
	}
	ends(0, 0)
	for i := range uint64(10) {
		require.NoError(t, s.StoreLog(&raft.Log{Index: i + 1}))
	}
	ends(1, 10)
	require.NoError(t, s.DeleteRange(1, 3))
	ends(4, 10)
	require.NoError(t, s.DeleteRange(10, math.MaxUint64))
	ends(4, 9)
	require.NoError(t, s.DeleteRange(5, 4))
	ends(4, 9)
}

// Raft compares the text of the error.
func TestAnAbsentKeyIsNotFound(t *testing.T) {
	s := openTest(t)
	_, err := s.Get([]byte("k"))
	require.EqualError(t, err, "not found")
	_, err = s.GetUint64([]byte("k"))
	require.EqualError(t, err, "not found")
	require.NoError(t, s.SetUint64([]byte("k"), 7))
	n, err := s.GetUint64([]byte("k"))
	require.NoError(t, err)
	require.EqualValues(t, 7, n)
}

// A cluster of one applies commands, stops, and finds its log and its term again.
func TestAClusterStartsAgainFromItsLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "raft.ebb")
	for start := range 2 {
		db, s := open(t, path)
		f := &machine{applied: make(chan string, 100)}
		c := raft.DefaultConfig()
		c.LocalID, c.LogOutput = "one", io.Discard
		c.HeartbeatTimeout, c.ElectionTimeout = 50*time.Millisecond, 50*time.Millisecond
		c.LeaderLeaseTimeout = 50 * time.Millisecond
		address, transport := raft.NewInmemTransport("one")
		if start == 0 {
			require.NoError(t, raft.BootstrapCluster(c, s, s, raft.NewInmemSnapshotStore(), transport,
				raft.Configuration{Servers: []raft.Server{{ID: "one", Address: address}}}))
		}
		node, err := raft.NewRaft(c, f, s, s, raft.NewInmemSnapshotStore(), transport)
		require.NoError(t, err)
		require.True(t, <-node.LeaderCh())
		command := fmt.Sprintf("command %d", start)
		require.NoError(t, node.Apply([]byte(command), 0).Error())
		for i := range start + 1 {
			require.Equal(t, fmt.Sprintf("command %d", i), <-f.applied)
		}
		require.NoError(t, node.Shutdown().Error())
		require.NoError(t, db.Close())
	}
}

type machine struct{ applied chan string }

func (m *machine) Apply(entry *raft.Log) any {
	m.applied <- string(entry.Data)
	return nil
}

func (m *machine) Snapshot() (raft.FSMSnapshot, error) { return nil, io.ErrUnexpectedEOF }
func (m *machine) Restore(io.ReadCloser) error         { return io.ErrUnexpectedEOF }

func BenchmarkSuite(b *testing.B) {
	for name, run := range map[string]func(*testing.B, raft.LogStore){
		"FirstIndex": raftbench.FirstIndex, "LastIndex": raftbench.LastIndex, "GetLog": raftbench.GetLog,
		"StoreLog": raftbench.StoreLog, "StoreLogs": raftbench.StoreLogs,
		"DeleteRange": raftbench.DeleteRange,
	} {
		b.Run(name, func(b *testing.B) { run(b, openTest(b)) })
	}
	for name, run := range map[string]func(*testing.B, raft.StableStore){
		"Set": raftbench.Set, "Get": raftbench.Get, "SetUint64": raftbench.SetUint64,
		"GetUint64": raftbench.GetUint64,
	} {
		b.Run(name, func(b *testing.B) { run(b, openTest(b)) })
	}
}
