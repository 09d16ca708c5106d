package server

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEveryCommandIsDescribed: commands.txt and the command table have the same names.
func TestEveryCommandIsDescribed(t *testing.T) {
	for name := range commands {
		require.Contains(t, commandDocs, name, "commands.txt has no line for it")
	}
	for name := range commandDocs {
		require.Contains(t, commands, name, "commands.txt describes what is not there")
	}
	require.Equal(t, len(commands), strings.Count(docsText, "\n"))
}

// documented is the table of docs/redis.md.
func documented() string {
	groups := map[string][]string{}
	for name, doc := range commandDocs {
		groups[doc.group] = append(groups[doc.group], strings.ToUpper(name))
	}
	var b strings.Builder
	b.WriteString("| group | commands |\n|---|---|\n")
	for _, group := range slices.Sorted(func(yield func(string) bool) {
		for g := range groups {
			if !yield(g) {
				return
			}
		}
	}) {
		slices.Sort(groups[group])
		fmt.Fprintf(&b, "| %s | %s |\n", group, strings.Join(groups[group], " "))
	}
	return b.String()
}

// TestDocumentListsTheCommands: UPDATE_DOCS=1 writes the table.
func TestDocumentListsTheCommands(t *testing.T) {
	const file, mark = "../../../docs/redis.md", "command table of the server. -->\n"
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	head, table, ok := strings.Cut(string(text), mark)
	require.True(t, ok)
	if os.Getenv("UPDATE_DOCS") != "" {
		require.NoError(t, os.WriteFile(file, []byte(head+mark+documented()), 0o644))
		return
	}
	require.Equal(t, documented(), table)
}

func TestCommandDescribesCommands(t *testing.T) {
	c := start(t, Options{}).client()
	require.Equal(t, fmt.Sprint(len(commands)), c.line("COMMAND COUNT"))
	require.Equal(
		t,
		`[["get" 2 ~[fast readonly] 1 1 1 ~[@string] [] [] []] nil]`,
		threeDo(c, "COMMAND INFO get nosuch"),
	)
	require.Contains(t, c.line("COMMAND DOCS set"), "SET key value")
	require.Equal(t, `["a" "b"]`, c.line("COMMAND GETKEYS MSET a 1 b 2"))
	require.Equal(
		t,
		`["hget" "hgetall" "hgetdel" "hgetex"]`,
		c.line("COMMAND LIST FILTERBY PATTERN hget*"),
	)
	require.NotContains(t, c.line("COMMAND"), "nil")
}

// threeDo runs a line in version 3.
func threeDo(c *client, line string) string {
	c.line("HELLO 3")
	return c.line(line)
}

func TestConfigReadsAndChangesParameters(t *testing.T) {
	c := start(t, Options{}).client()
	require.Equal(t, `["appendfsync" "always"]`, c.line("CONFIG GET appendfsync"))
	require.Equal(
		t,
		`["maxclients" "10000" "maxmemory" "0" "maxmemory-policy" "noeviction"]`,
		c.line("CONFIG GET max*"),
	)
	require.Equal(t, "OK", c.line("CONFIG SET appendfsync everysec maxclients 50"))
	require.Equal(
		t,
		`["appendfsync" "everysec" "maxclients" "50"]`,
		c.line("CONFIG GET appendfsync maxclients"),
	)
	require.Contains(
		t,
		c.line("CONFIG SET maxclients 60 appendfsync sometimes"),
		"want always, everysec or no",
	)
	require.Equal(t, `["maxclients" "50"]`, c.line("CONFIG GET maxclients"))
	require.Contains(t, c.line("CONFIG SET databases 3"), "immutable")
	require.Contains(t, c.line("CONFIG SET nosuch 3"), "Unknown option")
}

func TestInfoHasWhatClientsRead(t *testing.T) {
	c := start(t, Options{}).client()
	c.line("SET k v EX 100")
	c.line("SET l v")
	info := c.line("INFO")
	for _, want := range []string{
		"redis_version:7.4.0", "loading:0", "role:master", "db0:keys=2,expires=1,avg_ttl=0", "# Ebb",
		"ebb_commits:",
		"connected_clients:1",
	} {
		require.Contains(t, info, want)
	}
	require.NotContains(t, info, "cmdstat_")
	require.Contains(t, c.line("INFO commandstats"), "cmdstat_set:calls=2")
	require.NotContains(t, c.line("INFO keyspace"), "redis_version")
}

func TestSlowCommandsAreLogged(t *testing.T) {
	c := start(t, Options{}).client()
	require.Equal(t, "OK", c.line("CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 2"))
	c.line("SET a 1")
	c.line("SET b 1")
	c.line("CONFIG SET slowlog-log-slower-than -1")
	require.Equal(t, "2", c.line("SLOWLOG LEN"))
	require.Contains(t, c.line("SLOWLOG GET 2"), `["SET" "b" "1"]`)
	require.Equal(t, "OK", c.line("SLOWLOG RESET"))
	require.Equal(t, "[]", c.line("SLOWLOG GET"))
}
