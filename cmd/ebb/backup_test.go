package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBackupAndRestore of a full backup and two increments, by files and by pipes.
func TestBackupAndRestore(t *testing.T) {
	s, dir := storePath(t), t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	good(t, "put", s, "a", "1", "--ttl", "1h")
	text := good(t, "backup", s, at("full"))
	require.Contains(t, text, "full backup, of commit")
	good(t, "put", s, "b", "2")
	inc := object(t, good(t, "backup", s, at("inc"), "--since", at("full"), "--json"))
	require.Equal(t, at("inc"), inc["file"])
	require.NotEmpty(t, inc["base"])
	good(t, "put", s, "c", "3")
	piped := ebb(t, "backup", s, "-", "--since", at("inc"), "--progress=lines")
	require.Equal(t, exitOK, piped.code)
	require.Contains(t, piped.stderr, `"done":`)
	require.Contains(t, piped.stderr, "increment on "+inc["id"].(string))

	verified := ebbIn(t, strings.NewReader(piped.out), "backup", "verify", at("full"), at("inc"), "-",
		"--json")
	require.Equal(t, exitOK, verified.code, verified.stderr)
	require.Equal(t, inc["id"], object(t, verified.out)["base"])
	restored := ebbIn(t, strings.NewReader(piped.out), "restore", at("r.ebb"), at("full"), at("inc"), "-")
	require.Equal(t, exitOK, restored.code, restored.stderr)
	require.Equal(t, at("r.ebb")+": restored from 3 backups\n", restored.out)
	require.Equal(t, good(t, "scan", s), good(t, "scan", at("r.ebb")))
	good(t, "check", at("r.ebb"))
	good(t, "restore", at("first.ebb"), at("full"))
	require.Equal(t, exitNotFound, ebb(t, "get", at("first.ebb"), "b").code)
}

// TestErrorsOfBackupsAdviseOnBackups: a cut backup advised to check and salvage the store, a backup that
// is missing to create one, and a chain in the wrong order named its backups by numbers that no other
// output has.
func TestErrorsOfBackupsAdviseOnBackups(t *testing.T) {
	s, dir := storePath(t), t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	good(t, "put", s, "a", "1")
	good(t, "backup", s, at("full"))
	good(t, "backup", s, at("inc"), "--since", at("full"))
	good(t, "backup", s, at("last"), "--since", at("inc"))
	full, err := os.ReadFile(at("full"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(at("cut"), full[:len(full)-1], 0o600))
	require.NoError(t, os.WriteFile(at("zeros"), make([]byte, len(full)), 0o600))
	for _, args := range [][]string{
		{"backup", "verify", at("cut")}, {"restore", at("r.ebb"), at("cut")},
		{"backup", s, at("x"), "--since", at("zeros")},
	} {
		a := ebb(t, args...)
		require.Equal(t, exitError, a.code)
		require.Contains(t, a.stderr, "make a full one now", "ebb %q", args)
		require.NotContains(t, a.stderr, "salvage")
	}
	a := ebb(t, "restore", at("full"), at("r.ebb")) // the store comes first
	require.Equal(t, exitError, a.code)
	require.Contains(t, a.stderr, "the new store is named first")
	a = ebb(t, "restore", at("r.ebb"), at("full"), at("last"))
	require.Equal(t, exitError, a.code)
	for _, name := range []string{"full", "inc"} {
		info, err := readBackupInfo(at(name))
		require.NoError(t, err)
		require.Contains(t, a.stderr, info.ID)
	}
}

// TestBackupErrors leave no file behind, and what was there as it was.
func TestBackupErrors(t *testing.T) {
	s, dir := storePath(t), t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	good(t, "put", s, "a", "1")
	good(t, "backup", s, at("full"))
	before, err := os.ReadFile(at("full"))
	require.NoError(t, err)
	bad := func(want string, args ...string) {
		t.Helper()
		a := ebb(t, args...)
		require.Equal(t, exitError, a.code, "ebb %q", args)
		require.Contains(t, a.stderr, want)
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			require.False(t, strings.HasSuffix(e.Name(), ".part") || strings.HasSuffix(e.Name(),
				".new"), e.Name())
		}
	}
	bad("exists", "backup", s, at("full"))
	bad("full", "backup", s, at("full"))
	bad("no such file", "backup", at("absent.ebb"), at("x"))
	bad("no such file", "backup", s, at("x"), "--since", at("absent"))
	bad("not a backup", "backup", s, at("x"), "--since", s)
	bad("exist", "restore", s, at("full"))
	good(t, "backup", s, at("inc"), "--since", at("full"))
	bad("a full backup comes first", "restore", at("r.ebb"), at("inc"))
	bad("does not work on one family", "backup", s, at("x"), "--family", "f")
	other := storePath(t)
	good(t, "put", other, "a", "1")
	bad("of store", "backup", other, at("x"), "--since", at("full"))
	after, err := os.ReadFile(at("full"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(before, after))
	require.NoError(t, os.WriteFile(at("cut"), before[:len(before)-1], 0o600))
	bad("ends too early", "restore", at("r.ebb"), at("cut"))
	bad("ends too early", "backup", "verify", at("cut"))
	for _, name := range []string{"r.ebb", "x"} {
		_, err := os.Stat(at(name))
		require.ErrorIs(t, err, os.ErrNotExist)
	}
}
