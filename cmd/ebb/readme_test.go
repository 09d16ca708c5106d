package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadmeShowsTheCompiledExample keeps the README's quick start equal to code that is compiled
// and run.
func TestReadmeShowsTheCompiledExample(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	source, err := os.ReadFile("../../kv/example_test.go")
	require.NoError(t, err)

	block := regexp.MustCompile("(?s)```go\n(.*?)```").FindSubmatch(readme)
	require.NotNil(t, block, "README.md has a block of Go code")
	body := regexp.MustCompile(`(?s)\nfunc Example\(\) \{\n(.*?)\n}\n`).FindSubmatch(source)
	require.NotNil(t, body, "kv/example_test.go has a func Example")
	program := regexp.MustCompile(`(?s)\nfunc main\(\) \{\n(.*?)\n}\n`).FindSubmatch(block[1])
	require.NotNil(t, program, "the block of README.md is a program")
	require.Equal(t, string(body[1]), string(program[1]))
}

// TestReadmeShowsWhatTheCommandPrints runs the session of the README: a line "$ ebb ..." and what
// follows it.
func TestReadmeShowsWhatTheCommandPrints(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	session := regexp.MustCompile("(?s)```console\n(.*?)```").FindSubmatch(readme)
	require.NotNil(t, session, "README.md has a console session")
	t.Chdir(t.TempDir())
	steps := strings.Split(string(session[1]), "$ ebb ")[1:]
	require.NotEmpty(t, steps)
	for _, step := range steps {
		line, want, _ := strings.Cut(step, "\n")
		args := strings.Fields(line)
		for i := range args {
			args[i] = strings.Trim(args[i], "'")
		}
		var both bytes.Buffer // as on a terminal
		run(t.Context(), args, strings.NewReader(""), &both, &both)
		require.Equal(t, want, both.String(), "ebb %s", line)
	}
}

// TestDocumentsCallTheCommandAsItIs: each call of ebb in a document names a command, flags and as many
// arguments as it takes.
func TestDocumentsCallTheCommandAsItIs(t *testing.T) {
	call := regexp.MustCompile("(?m)(?:^\\$ |`)(?:bin/)?ebb ([a-z][^`\n]*)")
	names, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	calls := 0
	for _, name := range append(names, "../../README.md", "../../SECURITY.md", "../../CONTRIBUTING.md") {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, m := range call.FindAllStringSubmatch(string(text), -1) {
			line, _, _ := strings.Cut(strings.TrimSuffix(m[1], ":"), " | ")
			line, _, _ = strings.Cut(line, " > ")
			root := rootCommand(&app{out: newOutput(io.Discard)})
			root.InitDefaultCompletionCmd()
			cmd, rest, err := root.Find(strings.Fields(line))
			require.NoError(t, err, "%s: ebb %s", name, m[1])
			require.NotEqual(t, root, cmd, "%s: ebb %s", name, m[1])
			require.NoError(t, cmd.ParseFlags(rest), "%s: ebb %s", name, m[1])
			if len(rest) > 0 && !strings.HasPrefix(rest[0], "-") { // else only named
				require.NoError(t, cmd.ValidateArgs(cmd.Flags().Args()), "%s: ebb %s", name, m[1])
			}
			calls++
		}
	}
	require.Greater(t, calls, 20)
}
