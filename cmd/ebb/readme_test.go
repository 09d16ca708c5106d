package main

import (
	"bytes"
	"os"
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
