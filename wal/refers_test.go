package wal

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWhatACommitRefersToIsDurableFirst watches when Before is called: ahead of the write of the group that ends such a commit, whoever
// leads, and of no other.
func TestWhatACommitRefersToIsDurableFirst(t *testing.T) {
	for _, block := range []int{0, 512} {
		d := newDisk(t, block)
		o := testOptions(d)
		o.SegmentSize, o.Inline = 4*MinSegmentSize, true
		o.Before = func() error {
			_, err := d.do("before", "", 0)
			return err
		}
		l := createTest(t, o)
		steps := func(call func()) (ops []string) {
			d.ops = nil
			call()
			for _, op := range d.ops {
				op, _, _ = strings.Cut(op, " ")
				ops = append(ops, op)
			}
			return ops
		}
		require.NotContains(t, steps(func() { l.commit("plain", true) }), "before")
		l.Refers()
		ops := steps(func() { l.commit("refers", true) })
		require.Equal(t, "before", ops[0])
		require.Greater(t, len(ops), 1)
		require.NotContains(t, steps(func() { l.commit("plain", true) }), "before", "it was said of one commit")

		// A part that does not end the commit is written without it.
		_, err := l.Append(make([]byte, 100), false)
		require.NoError(t, err)
		require.NotContains(t, steps(func() { require.NoError(t, l.Sync()) }), "before")
		l.Refers()
		ops = steps(func() { l.commit("end", false) })
		require.Equal(t, "before", ops[0], "a commit that waits for no sync, too")

		// What is given up refers to nothing.
		_, err = l.Append([]byte("void"), false)
		require.NoError(t, err)
		l.Refers()
		l.Abort()
		require.NotContains(t, steps(func() { l.commit("plain", true) }), "before")

		// One of many in a group, written by who waits for another.
		end, err := l.Append([]byte("a"), true)
		require.NoError(t, err)
		l.Refers()
		_, err = l.Append([]byte("b"), true)
		require.NoError(t, err)
		_, err = l.Append([]byte("c"), true)
		require.NoError(t, err)
		ops = steps(func() { require.NoError(t, l.Wait(end, true)) })
		require.Equal(t, 0, slices.Index(ops, "before"))
	}
}

// TestGroupIsNotWrittenIfWhatItRefersToIsNotDurable: its commits are not in the log, for certain.
func TestGroupIsNotWrittenIfWhatItRefersToIsNotDurable(t *testing.T) {
	boom := errors.New("boom")
	d := newDisk(t, 512)
	o := testOptions(d)
	o.Before = func() error { return boom }
	l := createTest(t, o)
	l.commit("there", true)
	l.Refers()
	end, err := l.Append([]byte("not there"), true)
	require.NoError(t, err)
	d.ops = nil
	err = l.Wait(end, true)
	require.ErrorIs(t, err, ErrFailed)
	require.ErrorIs(t, err, boom)
	require.NotErrorIs(t, err, ErrUnknown)
	require.Empty(t, d.ops)
	_, err = l.Append([]byte("after"), true)
	require.ErrorIs(t, err, ErrFailed)
	got, _, err := replayAll(l.opts, l.start, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"there"}, got)
}
