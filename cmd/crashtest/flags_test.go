package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNonsenseIsRefused: what a mode would ignore, or take for its default, is an error. `history
// -n 0` used to pass, and `history a b -n 3` made 300 histories, and `enumerate -len 9` took memory
// until there was none.
func TestNonsenseIsRefused(t *testing.T) {
	for line, want := range map[string]string{
		"enumerate -depth 0":                 "-depth is 0, want at least 1",
		"enumerate -depth 7":                 "-depth is 7, want at most 3",
		"enumerate -len 0":                   "-len is 0",
		"enumerate -len 5":                   "-len is 5, want at most 4",
		"enumerate -workers 0":               "-workers is 0",
		"enumerate -skip -1":                 "-skip is -1, want at least 0",
		"enumerate -most -1":                 "-most is -1",
		"enumerate -budget -1s":              "-budget is -1s",
		"enumerate -profiles kill,maim":      `"maim" is not known`,
		"enumerate 3":                        `what is "3"?`,
		"enumerate -nonsense":                "not defined: -nonsense",
		"enumerate -depth two":               "invalid value",
		"replay":                             "want one line",
		"replay one put.0":                   `what is "put.0"?`,
		"fsyncgate -workers 0":               "-workers is 0",
		"fsyncgate now":                      `what is "now"?`,
		"faults -len 0":                      "-len is 0",
		"faults -len 99":                     "-len is 99",
		"fsyncgate -len 99":                  "-len is 99",
		"syncs -len 99":                      "-len is 99",
		"faults -kinds read,raed":            `"raed" is not known`,
		"faults read":                        `what is "read"?`,
		"syncs -len -1":                      "-len is -1",
		"syncs all":                          `what is "all"?`,
		"bitflip -every 0":                   "-every is 0",
		"bitflip -bits 0":                    "-bits is 0",
		"bitflip -bits 9":                    "-bits is 9, want at most 8",
		"bitflip -deep 0":                    "-deep is 0",
		"bitflip -workers -1":                "-workers is -1",
		"bitflip -shapes oak":                `"oak" is not known`,
		"bitflip -damage melt":               `"melt" is not known`,
		"bitflip -json tree app.ebb cut 0 0": `"tree" is judged without flags`,
		"interleave -workers 0":              "-workers is 0",
		"interleave -sample -1":              "-sample is -1",
		"history -n 0":                       "-n is 0",
		"history -clients 0":                 "-clients is 0",
		"history -ops 0":                     "-ops is 0",
		"history -workers 0":                 "-workers is 0",
		"history a b -n 3":                   `what is "b"?`,
		"history -n 3 a":                     `"a" is judged without flags`,
		"kill -n 0":                          "-n is 0",
		"kill 20":                            `what is "20"?`,
		"loopfs -n 0":                        "-n is 0",
		"kill-child":                         "usage: kill-child STORE",
	} {
		t.Run(line, func(t *testing.T) {
			args := strings.Fields(line)
			status, out, text := try(args...)
			require.Equal(t, 2, status, text)
			require.Empty(t, out)
			require.Regexp(t, "^crashtest "+args[0]+": .*\nSee crashtest "+args[0]+" -h.\n$", text)
			require.Contains(t, text, want)
		})
	}
}

func TestListsInFlagsMayHaveSpacesAndRepeat(t *testing.T) {
	chosen, err := choose("kinds", " read,write, read", []string{"write", "read", "sync"})
	require.NoError(t, err)
	require.Equal(t, []string{"read", "write"}, chosen)
	chosen, err = choose("kinds", "", []string{"write"})
	require.NoError(t, err)
	require.Nil(t, chosen)
}
