package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRowsByTimeFromTheShell(t *testing.T) {
	s := newTimedStore(t)
	s.now = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	s.good("family", "cpu", "--create", "--retention", "2h", "--partition", "1h")
	require.Equal(t, "cpu\tretention 2h in partitions of 1h\ndefault\n", s.good("family"))
	require.Equal(t, "retention: 2h\npartition: 1h\n", s.good("family", "cpu"))
	s.good("append", "host-1", "7", "--family", "cpu", "--at", "-90m")
	s.good("append", "host-1", "9", "--family", "cpu", "--at", "2026-11-29T11:45:00Z")
	row := object(t, s.good("append", "host-2", "8", "--family", "cpu", "--json"))
	want := map[string]any{"family": "cpu", "key": "host-2", "size": 1.0, "time": "2026-11-29T12:00:00Z"}
	require.Equal(t, want, row)
	all := "2026-11-29T10:30:00Z\thost-1\t7\n2026-11-29T11:45:00Z\thost-1\t9\n" +
		"2026-11-29T12:00:00Z\thost-2\t8\n"
	require.Equal(t, all, s.good("scan-time", "--family", "cpu"))
	require.Equal(t, "2026-11-29T12:00:00Z\thost-2\t8\n",
		s.good("scan-time", "--family", "cpu", "--reverse", "--limit", "1"))
	require.Equal(t, "2026-11-29T11:45:00Z\thost-1\t9\n",
		s.good("scan-time", "--family", "cpu", "--from", "-1h", "--to", "now"))
	require.Contains(t, s.good("dump"), "family cpu: 3 rows\n"+all)
	require.Contains(t, s.good("stats"), "cpu     2026-11-29T10:00:00Z  2026-11-29T11:00:00Z  1")

	s.code(exitError, "partitioned", "put", "k", "v", "--family", "cpu")
	s.code(exitError, "partitioned", "scan", "--family", "cpu")
	s.code(exitError, "not_partitioned", "append", "k", "v")
	s.code(exitError, "not_partitioned", "scan-time")
	s.code(exitError, "usage", "scan-time", "--family", "cpu", "--limit", "-1")
	s.code(exitError, "usage", "scan-time", "--family", "cpu", "--from", "yesterday")

	s.good("family", "cpu", "--retention", "1h")
	require.Equal(t, "retention: 1h\npartition: 1h\n", s.good("family", "cpu"), "the width stays")
	require.Contains(t, s.good("purge", "--family", "cpu"), "1")
	require.NotContains(t, s.good("scan-time", "--family", "cpu"), "10:30")
	s.good("check")
}
