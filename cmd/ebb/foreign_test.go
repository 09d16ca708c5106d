package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
)

// TestAHintNamesWhatAFileIs: a backup, a store and a file of bbolt in each other's place.
func TestAHintNamesWhatAFileIs(t *testing.T) {
	dir := t.TempDir()
	store, backup := filepath.Join(dir, "a.ebb"), filepath.Join(dir, "a.bak")
	good(t, "put", store, "k", "v")
	good(t, "backup", store, backup)
	other := filepath.Join(dir, "old.db")
	db, err := bolt.Open(other, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	for _, test := range []struct {
		hint string
		args []string
	}{
		{"`ebb restore STORE FILE`", []string{"scan", backup}},
		{"`ebb restore STORE FILE`", []string{"check", backup}},
		{"`ebb restore STORE FILE`", []string{"put", backup, "k", "v"}},
		{"`ebb import STORE --from bolt FILE`", []string{"scan", other}},
		{"`ebb backup STORE FILE`", []string{"restore", filepath.Join(dir, "b.ebb"), store}},
		{"`ebb backup STORE FILE`", []string{"backup", "verify", store}},
		{"`ebb backup STORE FILE`", []string{"backup", store, filepath.Join(dir, "c.bak"), "--since", store}},
		{"takes another name", []string{"backup", store, backup}},
		{"takes another name", []string{"restore", store, backup}},
		{"`ebb load` takes rows", []string{"import", store, backup}},
	} {
		a := ebb(t, test.args...)
		require.Equal(t, exitError, a.code, test.args)
		require.Contains(t, a.stderr, test.hint, test.args)
	}
}
