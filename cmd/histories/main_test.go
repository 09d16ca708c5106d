package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/fuzz"
	"github.com/ebbkv/ebb/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestHistoriesHaveAnOrder(t *testing.T) {
	var out, errs bytes.Buffer
	require.Zero(t, run([]string{"-n", "20", "-json"}, &out, &errs), errs.String())
	var r report
	require.NoError(t, json.Unmarshal(out.Bytes(), &r))
	require.Equal(t, 20, r.Histories)
	require.Equal(t, 10, r.Crashes)
	require.Greater(t, r.Transactions, 1000)
}

func TestNonsenseIsRefused(t *testing.T) {
	for line, want := range map[string]string{
		"-x": "not defined: -x", "-n 0": "-n, ", "-clients 0": "-clients", "-ops -1": "-ops",
		"-limit -1s": "-limit", "5": `what is "5"?`, "-n 3 5": `what is "5"?`,
	} {
		var out, errs bytes.Buffer
		require.Equal(t, 2, run(strings.Fields(line), &out, &errs), line)
		require.Empty(t, out.String(), line)
		require.Contains(t, errs.String(), want)
	}
	var out, errs bytes.Buffer
	require.Zero(t, run([]string{"-h"}, &out, &errs))
	require.Contains(t, out.String(), "-clients")
	require.Empty(t, errs.String())
}

// TestCheckerSeesWrongHistories breaks a history in the ways that a store could.
func TestCheckerSeesWrongHistories(t *testing.T) {
	sound := func() *fuzz.History {
		return &fuzz.History{Keys: keys, Events: []fuzz.Event{
			{
				Client: 0,
				Begin:  1,
				End:    2,
				Fate:   fuzz.Done,
				Writes: []fuzz.Access{{Key: 0, Value: 1}, {Key: 1, Value: 2}},
			},
			{
				Client: 1,
				Begin:  3,
				End:    6,
				Fate:   fuzz.Done,
				Reads:  []fuzz.Access{{Key: 0, Value: 1}},
				Writes: []fuzz.Access{{Key: 0, Value: 3}},
			},
			{Client: 0, Begin: 4, End: 5, Reads: []fuzz.Access{{Key: 0, Value: 1}, {Key: 1, Value: 2}}},
			{Client: 0, Begin: 7, End: 8, Reads: []fuzz.Access{{Key: 0, Value: 3}}},
			{
				Client: 2,
				Begin:  2,
				End:    9,
				Fate:   fuzz.Unknown,
				Reads:  []fuzz.Access{{Key: 5, Value: 77}},
				Writes: []fuzz.Access{{Key: 2, Value: 4}},
			},
			{Client: 3, Begin: 2, End: 9, Fate: fuzz.Void, Writes: []fuzz.Access{{Key: 0, Value: 9}}},
		}}
	}
	require.Equal(t, porcupine.Ok, check(sound(), time.Minute))
	for name, breakIt := range map[string]func(h *fuzz.History){
		"stale read":    func(h *fuzz.History) { h.Events[3].Reads[0].Value = 1 },
		"half a commit": func(h *fuzz.History) { h.Events[2].Reads[1].Value = 0 },
		"lost update":   func(h *fuzz.History) { h.Events[1].Reads[0].Value = 0 },
		"void is seen":  func(h *fuzz.History) { h.Events[3].Reads[0].Value = 9 },
		"seen and gone": func(h *fuzz.History) {
			h.Events[2].Reads = []fuzz.Access{{Key: 2, Value: 4}}
			h.Events[3].Reads = []fuzz.Access{{Key: 2, Value: 0}}
		},
	} {
		h := sound()
		breakIt(h)
		require.Equal(t, porcupine.Illegal, check(h, time.Minute), name)
	}
}
