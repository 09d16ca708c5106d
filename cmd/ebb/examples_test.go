package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEveryCommandHasAnExample, that the command itself takes: its flags are there, and so many
// arguments are taken.
func TestEveryCommandHasAnExample(t *testing.T) {
	a := &app{}
	names := rootCommand(a).Commands()
	require.Greater(t, len(names), 20)
	for _, named := range names {
		require.NotEmpty(t, named.Example, "ebb %s --help has no example", named.Name())
		require.NotEmpty(t, named.Long, "ebb %s --help describes nothing", named.Name())
		if use := strings.Fields(named.Use); len(use) > 1 {
			require.Equal(t, "STORE", use[1], "ebb %s: the store comes first", use[0])
		}
		for _, line := range strings.Split(named.Example, "\n") {
			_, call, ok := strings.Cut(line, "ebb ")
			require.True(t, ok, "%q", line)
			call, _, _ = strings.Cut(call, " > ")
			words := regexp.MustCompile(`'[^']*'|\S+`).FindAllString(call, -1)
			cmd, rest, err := rootCommand(&app{}).Find(words)
			require.NoError(t, err, "%q", line)
			require.Equal(t, named.Name(), cmd.Name(), "%q", line)
			require.NoError(t, cmd.ParseFlags(rest), "%q", line)
			require.NoError(t, cmd.ValidateArgs(cmd.Flags().Args()), "%q", line)
		}
	}
	for _, g := range groups {
		for _, name := range g.commands {
			cmd, _, err := rootCommand(a).Find([]string{name})
			require.NoError(t, err)
			require.Equal(t, g.title, cmd.GroupID, "ebb %s", name)
		}
	}
	for _, cmd := range names {
		require.True(t, cmd.GroupID != "" || cmd.Name() == "version", "ebb %s is in no group", cmd.Name())
	}
	for name := range examples {
		cmd, _, err := rootCommand(a).Find([]string{name})
		require.NoError(t, err)
		require.Equal(t, examples[name], cmd.Example, "%s has an example of its own", name)
	}
}
