package main

import (
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestVersionAndHelp(t *testing.T) {
	require.Contains(t, good(t, "version"), runtime.Version())
	require.Equal(t, runtime.Version(), object(t, good(t, "version", "--json"))["go"])
	require.Equal(t, good(t, "version"), good(t, "--version"))
	require.Equal(t, good(t, "version", "--json"), good(t, "--version", "--json"))
	for _, command := range []string{"get", "put", "del", "scan", "import", "export", "family",
		"stats", "check", "dump", "pages", "wal",
		"ttl", "expire", "persist", "purge", "bench-quick", "demo", "version", "completion"} {
		require.Contains(t, good(t, "--help"), "  "+command, "%s is listed", command)
		require.NotEmpty(t, good(t, command, "--help"))
	}
	require.Contains(t, good(t, "completion", "bash"), "ebb")
	require.Equal(t, good(t, "get", "--help"), good(t, "help", "get"))
	require.Equal(t, good(t, "--help"), good(t, "help"))
	require.Equal(t, good(t, "completion", "--help"), good(t, "help", "completion"))
	require.Equal(t, good(t, "completion", "--help"), good(t, "completion"))
}

// TestHelpFitsATerminal: lines of up to 190 characters were broken by the terminal, anywhere.
func TestHelpFitsATerminal(t *testing.T) {
	root := rootCommand(&app{out: newOutput(io.Discard)})
	for _, cmd := range append(root.Commands(), root) {
		for line := range strings.Lines(cmd.Long + "\n" + cmd.Example) {
			require.LessOrEqual(t, utf8.RuneCountInString(line), 121, "%s: %s", cmd.Name(), line)
		}
	}
}

// TestEachFlagIsExplainedByItself: flags are listed by name, and what stood at --base64 was "the
// same in base64", as the first one.
func TestEachFlagIsExplainedByItself(t *testing.T) {
	help := good(t, "--help")
	require.NotContains(t, help, "the same")
	for _, flag := range []string{"hex", "base64"} {
		require.Regexp(t, "--"+flag+` +keys are `+flag, help)
	}
}

func TestVersionTellsTheRevisionIfTheBuildKnewIt(t *testing.T) {
	built := &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123abcd"}}}
	require.Contains(t, versionOf(built, true).String(), "revision 0123abcd")
	require.NotContains(t, versionOf(nil, false).String(), "revision")
}
