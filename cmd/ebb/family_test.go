package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFamiliesComeAndGo(t *testing.T) {
	s := newTimedStore(t)
	require.Empty(t, s.good("family", "sessions", "--create", "--default-ttl", "30m"))
	require.Equal(t, "default\nsessions\n", s.good("family"))
	s.good("put", "k", "v", "--cf", "sessions")
	require.Equal(t, "30m0s\n", s.good("ttl", "k", "--cf", "sessions"))
	s.good("family", "sessions", "--default-ttl", "0", "--rename", "old")
	require.Equal(t, []any{"default", "old"}, object(t, s.good("family", "--json"))["families"])
	s.good("put", "l", "v", "--cf", "old")
	require.Equal(t, "none\n", s.good("ttl", "l", "--cf", "old"))
	require.Equal(t, "30m0s\n", s.good("ttl", "k", "--cf", "old"), "what is there keeps its expiry")
	s.good("family", "default", "--default-ttl", "1h")
	s.good("put", "d", "v")
	require.Equal(t, "1h0m0s\n", s.good("ttl", "d"))
	s.good("family", "old", "--drop")
	require.Equal(t, "default\n", s.good("family"))
	s.now = s.now.Add(2 * time.Hour)
	s.code(exitNotFound, "not_found", "get", "d")
}

func TestFamilyRefusesWhatMakesNoSense(t *testing.T) {
	s := newTimedStore(t)
	s.good("family", "a", "--create")
	for _, args := range [][]string{
		{"a"}, {"--drop"}, {"--default-ttl", "1h"}, {"a", "--create", "--drop"}, {"a", "--drop", "--rename", "b"},
		{"a", "--drop", "--default-ttl", "1h"}, {"a", "--default-ttl", "soon"}, {"a", "b", "--create"},
	} {
		s.code(exitError, "usage", "family", args...)
	}
	s.code(exitNotFound, "family_not_found", "family", "absent", "--drop")
	s.code(exitNotFound, "family_not_found", "family", "absent", "--default-ttl", "1h")
	s.code(exitExists, "family_exists", "family", "a", "--create")
	s.code(exitExists, "family_exists", "family", "a", "--rename", "default")
	s.code(exitError, "reserved", "family", "default", "--drop")
	s.code(exitError, "invalid_ttl", "family", "a", "--default-ttl", "-1s")
	s.code(exitError, "reserved", "family", "a", "--rename", "__a")
	require.Equal(t, "a\ndefault\n", s.good("family"))
	absent := newTimedStore(t)
	absent.path += "-absent"
	require.Equal(t, exitError, absent.ebb("family", "a", "--default-ttl", "1h").code)
}
