package fuzz

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/bound"
	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
)

// workloadOf reads operations from bytes: two for each, its kind and the seed of its choices.
func workloadOf(b []byte, most int) Workload {
	w := Workload{Base: sequenceBases[0]}
	if len(b) == 0 {
		return w
	}
	names := append(append([]string{}, sequenceBases...), "wide", "random")
	w.Base = names[int(b[0])%len(names)]
	for b = b[1:]; len(b) >= 2 && len(w.Ops) < most; b = b[2:] {
		w.Ops = append(w.Ops, Op{int(b[0]) % len(operations), uint32(b[1])})
	}
	return w
}

func seeds(f *testing.F) {
	f.Add([]byte{})
	for kind := range operations {
		f.Add([]byte{byte(kind), byte(kind), 1, 0, 2, 10, 3})
	}
	// Sixteen of the largest operation, 36 MB each: fuzzing found them when the bound was one for
	// all workloads.
	f.Add([]byte("@\x7f\x7fxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"))
	// Ten transactions of many rows, which write pages early: each time with a buffer of its own,
	// until fuzzing found that, too.
	f.Add([]byte("\x18\xea\xea\xea\xea\xea\xea\xea\xea\xea\xea\xea\xea\xea\xea\xea\xea\xea\xea\xea\xea"))
}

// What may be allocated: by a workload and by each of its operations, with the trace of all that it
// wrote; by the judge of one image.
const (
	workBytes  = 64 << 20
	opBytes    = 48 << 20
	judgeBytes = 512 << 20
)

// done runs a workload within its bounds.
func done(t *testing.T, w Workload) *Run {
	defer bound.Hold(t, workBytes+opBytes*uint64(len(w.Ops)))()
	r, err := Do(w)
	require.NoError(t, err, "%s", w)
	return r
}

// FuzzOps runs operations on the store and on the model, which must agree all the way.
func FuzzOps(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) { done(t, workloadOf(b, 30)) })
}

// FuzzOpsCrash runs operations and then judges a crash that the last bytes choose.
func FuzzOpsCrash(f *testing.F) {
	racetest.OneGoroutine(f)
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		choice := 0
		for _, c := range b[max(0, len(b)-2):] {
			choice = choice<<8 | int(c)
		}
		r := done(t, workloadOf(b, 8))
		at := choice % (r.Disk.Len() + 1)
		j := &Judge{run: r}
		judge := func(im *crashfs.Image) {
			defer bound.Hold(t, judgeBytes)()
			_, err := j.Image(im)
			require.NoError(t, err, "%s | %d %s", r.Workload, im.Point, im.Desc())
		}
		n := 0
		for im := range r.Disk.Images(crashfs.ImageOptions{From: at, To: at + 1, Random: 2,
			Seed: uint64(choice)}) {
			if n++; n <= 200 && mix(im.Hash())%8 == 0 {
				judge(im)
			}
		}
	})
}
