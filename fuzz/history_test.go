package fuzz

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
)

func TestHistoriesAreThoseOfASerialStore(t *testing.T) {
	racetest.NotQuick(t)
	n := 100
	if testing.Short() {
		n = racetest.Sample(30, 12)
	}
	r := Histories(t.Context(), HistoriesOptions{Seed: 1, Count: n})
	require.Empty(t, r.Failures)
	require.Equal(t, n, r.Histories)
	require.Greater(t, r.Commits, n*150)
	require.Greater(t, r.Beside, n*10, "transactions that lie beside others")
	require.Greater(t, r.Crashes, n/3)
}

// handmade is a history of three commits by two clients and a crash that takes the last, relaxed
// one.
func handmade() *History {
	return &History{Keys: 2, Crash: 100, Recovered: 3, Events: []Event{
		{Client: 0, Begin: 1, End: 4, Seq: 2, Fate: Done, Writes: []Access{{0, 7}}},
		{Client: 1, Begin: 2, End: 3, Seq: 1, Reads: []Access{{0, 0}}},
		{
			Client: 1,
			Begin:  5,
			End:    8,
			Seq:    3,
			Fate:   Done,
			Reads:  []Access{{0, 7}},
			Writes: []Access{{0, 8}, {1, 9}},
		},
		{Client: 0, Begin: 6, End: 9, Seq: 2, Reads: []Access{{0, 7}, {1, 0}}},
		{Client: 0, Begin: 10, End: 11, Seq: 4, Fate: Done, Relax: true, Writes: []Access{{1, 0}}},
		{Client: 1, Begin: 12, End: 13, Seq: 4, Reads: []Access{{0, 8}, {1, 0}}},
		{Client: 1, Begin: 101, End: 102, Seq: 3, Reads: []Access{{0, 8}, {1, 9}}},
		{Client: 1, Begin: 103, End: 104, Seq: 4, Fate: Done, Writes: []Access{{0, 10}}},
		{Client: 0, Begin: 105, End: 106, Seq: 4, Reads: []Access{{0, 10}, {1, 9}}},
	}}
}

// TestJudgeOfHistories breaks a right history in one way after the other.
func TestJudgeOfHistories(t *testing.T) {
	require.NoError(t, handmade().Judge())
	for _, test := range []struct {
		name string
		do   func(h *History)
		want string
	}{
		{"a_value_of_another_state", func(h *History) { h.Events[3].Reads[1].Value = 9 },
			"key 1 is 9, want 0"},
		{"half_a_commit", func(h *History) { h.Events[3].Reads[0].Value = 8 }, "key 0 is 8, want 7"},
		{"a_lost_update", func(h *History) { h.Events[2].Reads[0].Value = 0 }, "key 0 is 0, want 7"},
		{"a_number_twice", func(h *History) { h.Events[4].Seq = 3 }, "where 4 belongs"},
		{"a_number_left_out", func(h *History) { h.Events[4].Seq = 5 }, "where 4 belongs"},
		{"a_stale_read", func(h *History) {
			h.Events[5] = Event{Begin: 12, End: 13, Seq: 3,
				Reads: []Access{{1, 9}}}
		}, "after state 4"},
		{"a_commit_before_its_time", func(h *History) {
			h.Events[2].Begin, h.Events[2].End = 0,
				1
			h.Events[0].Begin = 2
		}, "after state 3"},
		{"a_read_of_the_future", func(h *History) { h.Events[1] = Event{Begin: 2, End: 3, Seq: 3} },
			"which was begun at 5"},
		{"a_state_that_no_client_made", func(h *History) { h.Events[5].Seq = 9 }, "no client made"},
		{"a_durable_commit_lost", func(h *History) { h.Recovered = 2 }, "knew of commit 3"},
		{"a_relaxed_commit_lost_by_a_kill", func(h *History) { h.Killed = true }, "knew of commit 4"},
		{"a_commit_from_nowhere", func(h *History) { h.Recovered = 5 }, "anybody began is 4"},
		{"older_after_the_crash", func(h *History) {
			h.Events[6] = Event{Begin: 101, End: 102,
				Seq: 2, Reads: []Access{{1, 0}}}
		}, "after state 3"},
		{"undone_after_the_crash", func(h *History) { h.Events[8].Reads[1].Value = 0 }, "key 1 is 0, want 9"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := handmade()
			test.do(h)
			require.ErrorContains(t, h.Judge(), test.want)
		})
	}
	t.Run("an_unknown_commit_may_be_there_or_not", func(t *testing.T) {
		h := handmade()
		h.Events[4].Fate, h.Events[5].Seq = Unknown, 3
		h.Events[5].Reads = nil
		require.NoError(t, h.Judge())
		h.Recovered, h.Events = 4, slices.Delete(h.Events, 6, 9)
		require.NoError(t, h.Judge())
	})
	t.Run("an_unknown_commit_before_one_that_is_done_is_there", func(t *testing.T) {
		h := handmade()
		h.Events[3].Seq, h.Events[3].Reads = 1, nil
		h.Events[0].Fate, h.Events[0].Relax = Unknown, true
		require.NoError(t, h.Judge())
		h.Events[2].Reads[0].Value = 0
		require.ErrorContains(t, h.Judge(), "key 0 is 0, want 7")
		h = handmade()
		h.Events[0].Fate = Unknown
		require.ErrorContains(
			t,
			h.Judge(),
			"commit 3 (client 1) where 2 belongs; client 0, ticks 1-4, relaxed false: unknown",
			"one that waits knows what is durable",
		)
	})
}

// TestAnUnknownCommitMayBeSeen: the log failed when a reader had seen a relaxed commit, and before the
// commit asked what had become of it. The judge said that no client had made what the reader saw.
func TestAnUnknownCommitMayBeSeen(t *testing.T) {
	h := handmade()
	h.Events[4].Fate = Unknown
	require.NoError(t, h.Judge())
	h.Recovered, h.Events = 4, slices.Delete(h.Events, 6, 9)
	require.NoError(t, h.Judge())
	h = handmade()
	h.Events[4].Fate, h.Events[4].Relax, h.Events[5].Reads = Unknown, false, nil
	require.ErrorContains(t, h.Judge(), "saw state 4, which no client made", "it waits for the disk")
	h = handmade()
	h.Events[4].Fate, h.Events[5].Reads[1].Value = Unknown, 9
	require.ErrorContains(t, h.Judge(), "key 1 is 9, want 0")
}

func TestHistoriesCanBeKept(t *testing.T) {
	h, err := Record(6, HistoryOptions{Clients: 3, Ops: 60, Keys: 5, Crash: true})
	require.NoError(t, err)
	b, err := json.Marshal(h)
	require.NoError(t, err)
	var again History
	require.NoError(t, json.Unmarshal(b, &again))
	require.Equal(t, *h, again)
	require.NoError(t, again.Judge())
	require.Contains(t, h.keep(t.TempDir()), "history-6.json")
	require.Empty(t, h.keep(""))
	require.Contains(t, h.keep("/nowhere/at/all"), "cannot be kept")
}
