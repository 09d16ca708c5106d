package kv_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

// TestErrorsSayNothingTwice: "kv: no such family: cf: no such family: "x"" was what a user read first of all.
func TestErrorsSayNothingTwice(t *testing.T) {
	db, err := kv.OpenMemory(nil)
	require.NoError(t, err)
	defer db.Close()
	for _, c := range []struct {
		err  error
		is   error
		want string
	}{
		{db.CF("x").Put([]byte("k"), nil), kv.ErrCFNotFound, `kv: no such family: "x"`},
		{db.CreateCF("default", kv.CFOptions{}), kv.ErrCFExists, `kv: family exists: "default"`},
		{db.CreateCF("__x", kv.CFOptions{}), kv.ErrCFReserved, `kv: family is reserved: "__x"`},
		{db.CreateCF("", kv.CFOptions{}), kv.ErrCFName, "kv: family name not allowed: it is empty"},
		{db.PutTTL([]byte("k"), nil, -time.Second), kv.ErrInvalidTTL, "kv: invalid ttl: -1s"},
		{db.View(func(*kv.Tx) error { return db.Close() }), kv.ErrTxnsOpen, "kv: transactions are open"},
	} {
		require.ErrorIs(t, c.err, c.is)
		require.EqualError(t, c.err, c.want)
	}
}
