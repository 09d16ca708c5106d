package pager

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// openUndoLog returns an undo log that is open for a transaction that owns pages under 9, and the
// frame of a page of owner 5.
func openUndoLog(t *testing.T) (u *UndoLog, ref Ref, b []byte) {
	t.Helper()
	p := memoryBed().newPager(t, MinPageSize)
	id, b, err := p.New(5, AllocPolicy{})
	require.NoError(t, err)
	for i := range b {
		b[i] = byte(i)
	}
	u = &p.Undo
	require.True(t, u.Open(2, 9, func() []uint64 { return []uint64{3} }))
	return u, Ref{id, 2}, b
}

// overwrite is one operation of an UndoWriter.
func overwrite(t *testing.T, k *UndoWriter, ref Ref, b []byte, from, to int, with byte) {
	t.Helper()
	require.True(t, k.Changeable(ref))
	require.True(t, k.Enter())
	defer k.Leave()
	k.Record(ref.Pgid, from, to)
	copy(b[from:to], bytes.Repeat([]byte{with}, to-from))
}

// TestMergedEntriesAreInOrder: a page that several UndoWriters have changed in turn has its
// previous content after a rollback, and for readers.
func TestMergedEntriesAreInOrder(t *testing.T) {
	for _, rollback := range []bool{true, false} {
		u, ref, b := openUndoLog(t)
		was := bytes.Clone(b)
		overwrite(t, u.Own(), ref, b, 100, 110, 1)
		ks := u.Split(3)
		require.Same(t, u.Own(), ks[0])
		overwrite(t, ks[2], ref, b, 105, 120, 2)
		u.Merge()
		overwrite(t, u.Own(), ref, b, 90, 107, 3)
		ks = u.Split(2)
		overwrite(t, ks[1], ref, b, 95, 118, 4)
		if rollback {
			u.Merge()
			u.Rollback()
			require.Equal(t, was, b)
			continue
		}
		u.Seal()
		s := u.pool.table.peek(ref.Pgid)
		before, err := u.pageBefore(ref.Pgid, s, 3) // during Split
		require.NoError(t, err)
		require.Equal(t, was, before)
		u.Merge()
		before, err = u.pageBefore(ref.Pgid, s, 3)
		require.NoError(t, err)
		require.Equal(t, was, before)
		u.Rollback()
		require.Equal(t, was, b)
	}
}

// TestSealStopsAllUndoWriters, also after Split, until the next transaction opens the log.
func TestSealStopsAllUndoWriters(t *testing.T) {
	u, ref, b := openUndoLog(t)
	ks := u.Split(3)
	for _, k := range ks {
		overwrite(t, k, ref, b, 100, 110, 1)
	}
	u.Seal()
	for _, k := range ks {
		require.False(t, k.Enter())
		require.True(t, k.Full())
	}
	for _, k := range u.Split(3) {
		require.False(t, k.Enter(), "lent since")
	}
	u.Merge()
	require.False(t, u.Own().Enter())
	u.Committed(11)
	u.Publish(11, func() {})
	require.False(t, u.Open(2, 12, func() []uint64 { return []uint64{8} }), "that reader is there yet")
	require.True(t, u.Open(2, 12, func() []uint64 { return nil }))
	require.True(t, u.Own().Enter())
	u.Own().Leave()
	require.False(t, ks[1].Enter(), "it has not been lent")
}

// TestSealWaitsForAllUndoWriters: while one of them changes a page, a reader finds the log active
// and waits, also if another reader has stopped the others.
func TestSealWaitsForAllUndoWriters(t *testing.T) {
	const patience = 50 * time.Millisecond // only a mistake could need it
	u, _, _ := openUndoLog(t)
	for no := range 3 {
		k := u.Split(3)[no]
		require.True(t, k.Enter())
		frozen := make(chan struct{})
		go func() {
			u.Seal()
			close(frozen)
		}()
		require.Never(t, func() bool { return !u.Active() }, patience, time.Millisecond,
			"keeper %d is inside", no)
		k.Leave()
		<-frozen
		require.False(t, u.Active())
		u.Rollback()
		require.True(t, u.Open(2, 9, func() []uint64 { return []uint64{3} }))
	}
}

// TestUndoWritersShareTheirBound: together they record no more than one.
func TestUndoWritersShareTheirBound(t *testing.T) {
	u, ref, b := openUndoLog(t)
	kept := 0
	for round := 0; ; round++ {
		require.Less(t, round, 1000)
		any := false
		for _, k := range u.Split(4) {
			for range 50 {
				if k.Full() {
					break
				}
				overwrite(t, k, ref, b, 100, 400, 1)
				kept += 300
				any = true
			}
		}
		u.Merge()
		if !any {
			break
		}
	}
	bytesLeft, pieces := u.remaining()
	require.Greater(t, kept, u.maxBytes/2)
	require.Less(t, kept, u.maxBytes+4*400, "%d bytes and %d pieces are left", bytesLeft, pieces)
	require.True(t, u.Own().Full())
	u.Rollback()
}
