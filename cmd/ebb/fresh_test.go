package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

// TestACommandThatFailsLeavesNoStoreBehind: a key that was too long left an empty store of 24,576
// bytes, whose pages were then too small for the same key with --page-size. It is asked of each
// command that creates a store.
func TestACommandThatFailsLeavesNoStoreBehind(t *testing.T) {
	long, src := strings.Repeat("k", 1025), t.TempDir()
	writeFile(
		t,
		filepath.Join(
			src,
			strings.Repeat("d", 200),
			strings.Repeat("e", 200),
			strings.Repeat("f", 200),
			strings.Repeat("g", 200),
			strings.Repeat("h", 200),
			"i",
			strings.Repeat("j", 200),
		),
		"the path is longer than a key",
	)
	file := filepath.Join(src, "file")
	for _, args := range [][]string{
		{"put", long, "v"}, {"put", "", "v"}, {"put", long, "v", "--family", "other"},
		{"put", "k", "v", "--family", "__x"},
		{"put", "k", "v", "--family", strings.Repeat("x", 201)}, {"put", "k", "v", "--if-present"},
		{"put", "k", "v", "--if-present", "--family", "other"}, {"put", "k", "v", "--expire-at", "1"},
		{"put", "k", "v", "--ttl", "-1s"}, {"put", "k", "v", "--ttl", "7y"}, {"put", "k",
			"@" + file + ".absent"},
		{"put", "xyz", "v", "--hex"}, {"put", "k", "v", "--page-size", "5000"}, {"put", "k", "v", "--frob"},
		{"import", src + ".absent"}, {"import", src}, {"import", src, "--family", "__x"},
		{"import", src, "--family", "other"},
		{"import", src, "--expiries", file + ".absent"}, {"import", src, "--batch-bytes", "0"},
		{"family", "__x", "--create"}, {"family", "default", "--create"},
		{"family", "a", "--create", "--default-ttl", "-1s"},
		{"family", "", "--create"}, {"family", "a", "--default-ttl", "1h"}, {"family", "a",
			"--drop"}, {"family", "a"},
		{"del", "k"}, {"expire", "k", "1h"}, {"persist", "k"}, {"purge"}, {"get", "k"}, {"scan"},
		{"dump"}, {"check"}, {"stats"},
		{"export", filepath.Join(t.TempDir(), "out")},
	} {
		s := storePath(t)
		a := ebb(t, append([]string{args[0], s}, args[1:]...)...)
		require.NotEqual(t, exitOK, a.code, "%q", args)
		require.NotEmpty(t, a.stderr, "%q", args)
		left, err := os.ReadDir(filepath.Dir(s))
		require.NoError(t, err)
		require.Empty(t, left, "%.60q", args)
	}
	s := storePath(t)
	require.Equal(t, exitError, ebb(t, "put", s, long, "v").code)
	good(t, "put", s, long, "v", "--page-size", "8192")
}

// TestACommandThatFailsLeavesAStoreThatWasThere, an empty one as well, and what it has stored
// before it failed.
func TestACommandThatFailsLeavesAStoreThatWasThere(t *testing.T) {
	s := storePath(t)
	db, err := kv.Open(s, nil)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	require.Equal(t, exitError, ebb(t, "put", s, strings.Repeat("k", 1025), "v").code)
	good(t, "check", s)

	s = storePath(t)
	writeFile(t, s, "")
	require.Equal(t, exitError, ebb(t, "put", s, strings.Repeat("k", 1025), "v").code)
	require.FileExists(t, s, "a file of no bytes was there")

	src := t.TempDir()
	writeFile(t, filepath.Join(src, "a"), "v")
	writeFile(
		t,
		filepath.Join(
			src,
			strings.Repeat("d", 200),
			strings.Repeat("e", 200),
			strings.Repeat("f", 200),
			strings.Repeat("g", 200),
			strings.Repeat("h", 200),
			strings.Repeat("j", 200),
		),
		"the path is longer than a key",
	)
	s = storePath(t)
	require.Equal(t, exitError, ebb(t, "import", s, src).code)
	require.Equal(t, "a\n", good(t, "scan", s, "--keys-only"))
	good(t, "check", s)
}
