package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFamiliesComeAndGo(t *testing.T) {
	s := newTimedStore(t)
	require.Empty(t, s.good("family", "sessions", "--create", "--default-ttl", "30m"))
	require.Equal(t, "default\nsessions\tdefault ttl 30m\n", s.good("family"))
	s.good("put", "k", "v", "--family", "sessions")
	require.Equal(t, "30m\n", s.good("ttl", "k", "--family", "sessions"))
	s.good("family", "sessions", "--default-ttl", "0", "--rename", "old")
	require.Equal(t, []any{"default", "old"}, object(t, s.good("family", "--json"))["families"])
	s.good("put", "l", "v", "--family", "old")
	require.Equal(t, "none\n", s.good("ttl", "l", "--family", "old"))
	require.Equal(t, "30m\n", s.good("ttl", "k", "--family", "old"), "what is there keeps its expiry")
	s.good("family", "default", "--default-ttl", "1h")
	s.good("put", "d", "v")
	require.Equal(t, "1h\n", s.good("ttl", "d"))
	s.good("family", "old", "--drop")
	require.Equal(t, "default\tdefault ttl 1h\n", s.good("family"))
	s.now = s.now.Add(2 * time.Hour)
	s.code(exitNotFound, "not_found", "get", "d")
}

// TestJSONOfAFamilyThatChanges: nothing was printed, where every other command that changes
// something answers with --json.
func TestJSONOfAFamilyThatChanges(t *testing.T) {
	s := newTimedStore(t)
	for _, c := range []struct {
		flags []string
		want  map[string]any
	}{
		{[]string{"a", "--create"}, map[string]any{"family": "a", "default_ttl_ms": 0.0}},
		{[]string{"b", "--create", "--default-ttl", "30m"},
			map[string]any{"family": "b", "default_ttl_ms": 1800e3}},
		{[]string{"a", "--default-ttl", "999.1ms", "--rename", "c"},
			map[string]any{"family": "c", "default_ttl_ms": 1e3}},
		{[]string{"b", "--rename", "d"}, map[string]any{"family": "d"}},
		{[]string{"c", "--drop"}, map[string]any{"family": "c", "dropped": true}},
	} {
		require.Equal(t, c.want, object(t, s.good("family", append(c.flags, "--json")...)), "%q", c.flags)
	}
	require.Equal(t, "d\tdefault ttl 30m\ndefault\n", s.good("family"))
}

func TestFamilyRefusesWhatMakesNoSense(t *testing.T) {
	s := newTimedStore(t)
	s.good("family", "a", "--create")
	for _, args := range [][]string{
		{"--drop"}, {"--default-ttl", "1h"}, {"a", "--create", "--drop"}, {"a", "--drop", "--rename", "b"},
		{"a", "--drop", "--default-ttl", "1h"}, {"a", "--default-ttl", "soon"}, {"a", "b", "--create"},
	} {
		s.code(exitError, "usage", "family", args...)
	}
	s.code(exitNotFound, "family_not_found", "family", "absent")
	s.code(exitNotFound, "family_not_found", "family", "absent", "--drop")
	s.code(exitNotFound, "family_not_found", "family", "absent", "--default-ttl", "1h")
	s.code(exitExists, "family_exists", "family", "a", "--create")
	s.code(exitExists, "family_exists", "family", "a", "--rename", "default")
	s.code(exitError, "reserved", "family", "default", "--drop")
	s.code(exitError, "invalid_ttl", "family", "a", "--default-ttl", "-1s")
	s.code(exitError, "reserved", "family", "a", "--rename", "__a")
	s.code(exitError, "family_name", "family", "a", "--rename", "")
	require.Equal(t, "a\ndefault\n", s.good("family"))
	absent := newTimedStore(t)
	absent.path += "-absent"
	require.Equal(t, exitError, absent.ebb("family", "a", "--default-ttl", "1h").code)
}

// TestFamilyTellsTheSettings: no command did; only the expiry of a key that was put told what a
// family gives.
func TestFamilyTellsTheSettings(t *testing.T) {
	s := newTimedStore(t)
	s.good("family", "a", "--create", "--default-ttl", "7d")
	s.good("family", "b", "--create")
	require.Equal(t, "default ttl: 7d\n", s.good("family", "a"))
	require.Equal(t, "default ttl: none\n", s.good("family", "b"))
	require.Equal(
		t,
		map[string]any{"family": "a", "default_ttl_ms": 604800e3},
		object(t, s.good("family", "a", "--json")),
	)
	s.good("family", "a", "--default-ttl", "90s", "--json")
	require.Equal(t, "a\tdefault ttl 1m30s\nb\ndefault\n", s.good("family"))
	require.Equal(t, map[string]any{
		"a": map[string]any{
			"default_ttl_ms": 90e3,
		}, "b": map[string]any{"default_ttl_ms": 0.0}, "default": map[string]any{"default_ttl_ms": 0.0},
	}, object(t, s.good("family", "--json"))["settings"])

	m := object(t, s.good("stats", "--json"))
	require.Equal(t, map[string]any{"default_ttl_ms": 90e3}, m["settings"].(map[string]any)["a"])
	require.Regexp(t, `(?m)^a .* 1m30s$`, s.good("stats"))
	require.Regexp(t, `(?m)^b .* none$`, s.good("stats"))
}
