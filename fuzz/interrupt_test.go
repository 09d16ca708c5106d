package fuzz

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
)

// TestInterruptedCampaignsReport ends the context of each campaign as soon as it tells of
// something: it begins nothing more, reports what it has done, and does not claim to be complete.
func TestInterruptedCampaignsReport(t *testing.T) {
	racetest.NotQuick(t)
	for name, run := range map[string]func(t *testing.T, ctx context.Context, interrupt func()){
		"campaign": func(t *testing.T, ctx context.Context, interrupt func()) {
			r := Campaign(ctx, Options{Seed: 1, Profiles: crashfs.None, Depth: 1,
				Tick: func(Report) { interrupt() }})
			require.Equal(t, 50, r.Workloads)
			require.NotZero(t, r.Distinct)
			require.False(t, r.Complete)
		},
		"faults": func(t *testing.T, ctx context.Context, interrupt func()) {
			r, err := Faults(ctx, Options{Seed: 1, TickFaults: func(FaultReport) { interrupt() }})
			require.NoError(t, err)
			require.Equal(t, 1, r.Runs)
			require.False(t, r.Complete)
		},
		"histories": func(t *testing.T, ctx context.Context, interrupt func()) {
			r := Histories(ctx, HistoriesOptions{Count: 5000, Ops: 20,
				Tick: func(HistoriesReport) { interrupt() }})
			require.Equal(t, 1, r.Histories)
		},
		"rots": func(t *testing.T, ctx context.Context, interrupt func()) {
			r, err := Rots(ctx, RotOptions{Deep: 64, Tick: func(RotReport) { interrupt() }})
			require.NoError(t, err)
			require.Equal(t, rotBatch, r.Cases)
		},
		"interleavings": func(t *testing.T, ctx context.Context, interrupt func()) {
			r := Interleave(ctx, InterleaveOptions{Tick: func(InterleaveReport) { interrupt() }})
			require.Equal(t, 1, r.Played)
		},
		"syncs": func(t *testing.T, ctx context.Context, interrupt func()) {
			r, err := Syncs(ctx, 0, 2, func(string) { interrupt() })
			require.NoError(t, err)
			require.Len(t, r.Caught, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "syncs" {
				racetest.NotQuick(t)
				racetest.OneGoroutine(t)
			}
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			run(t, ctx, interrupt)
		})
	}
}
