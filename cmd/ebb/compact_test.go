package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

// holedStore is a closed store that Close leaves as long as it is: a fifth of its pages is free.
func holedStore(t *testing.T) string {
	s := storePath(t)
	db, err := kv.Open(s, &kv.Options{Durability: kv.NoSync})
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		for i := range 3000 {
			if err := tx.Put(fmt.Appendf(nil, "%05d", i), make([]byte, 900)); err != nil {
				return err
			}
		}
		return nil
	}))
	require.NoError(t, db.Checkpoint(t.Context()))
	for lo := 0; lo < 3000; lo += 600 {
		require.NoError(t, db.DeleteRange(fmt.Appendf(nil, "%05d", lo), fmt.Appendf(nil, "%05d", lo+100)))
	}
	require.NoError(t, db.Close())
	return s
}

func fileBytes(t *testing.T, name string) int64 {
	info, err := os.Stat(name)
	require.NoError(t, err)
	return info.Size()
}

func TestCompactShortensTheFile(t *testing.T) {
	s := holedStore(t)
	before := fileBytes(t, s)
	dump := good(t, "dump", s, "--json")
	a := ebb(t, "compact", s, "--json", "--progress=lines")
	require.Equal(t, exitOK, a.code, a.stderr)
	r := object(t, a.out)
	require.Equal(t, s, r["store"])
	require.EqualValues(t, before, r["bytes_before"])
	require.EqualValues(t, fileBytes(t, s), r["bytes_after"])
	require.Greater(t, r["moved_bytes"], float64(50_000))
	require.NotContains(t, r, "limited_by")
	require.Less(t, fileBytes(t, s), before*9/10)
	lines := strings.Split(strings.TrimSpace(a.stderr), "\n")
	require.GreaterOrEqual(t, len(lines), 2)
	last := object(t, lines[len(lines)-1])
	require.Equal(t, r["moved_bytes"], last["done"])
	require.Equal(t, dump, good(t, "dump", s, "--json"))
	good(t, "check", s)

	require.Contains(t, good(t, "compact", s), "0 B moved\n")
	db, err := kv.Open(s, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		for i := range 3000 {
			if i%4 < 2 {
				continue
			}
			if err := tx.Delete(fmt.Appendf(nil, "%05d", i)); err != nil && !errors.Is(err, kv.ErrNotFound) {
				return err
			}
		}
		return nil
	}))
	require.NoError(t, db.Close())
	require.Regexp(t, `moved, [0-9.]+ [KM]iB saved\n`, good(t, "compact", s, "--fill"))
	require.Equal(t, float64(0), object(t, good(t, "compact", s, "--fill", "--json"))["saved_bytes"])
	good(t, "check", s)
	require.Equal(t, exitError, ebb(t, "compact", s+"-none").code)
}

// TestInterruptedCompactSaysHowFarItCame, and another one goes on from there.
func TestInterruptedCompactSaysHowFarItCame(t *testing.T) {
	s := holedStore(t)
	before := fileBytes(t, s)
	dump := good(t, "dump", s, "--json")
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	code := run(ctx, []string{"compact", s, "--json", "--progress=lines"}, nil, &out,
		writerFunc(func([]byte) {
			cancel() // at the first step
		}))
	require.Equal(t, exitError, code)
	r := object(t, out.String())
	require.Greater(t, r["moved_bytes"], float64(0))
	interruptedEbb(ended(t), t, nil, "compact", s)
	good(t, "check", s)
	require.Equal(t, dump, good(t, "dump", s, "--json"))
	good(t, "compact", s)
	require.Less(t, fileBytes(t, s), before*9/10)
	require.Equal(t, dump, good(t, "dump", s, "--json"))
}
