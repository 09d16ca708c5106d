package fuzz

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
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
}

// FuzzOps runs operations on the store and on the model, which must agree all the way.
func FuzzOps(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		w := workloadOf(b, 30)
		_, err := Do(w)
		require.NoError(t, err, "%s", w)
	})
}

// FuzzOpsCrash runs operations and then judges a crash that the last bytes choose.
func FuzzOpsCrash(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		choice := 0
		for _, c := range b[max(0, len(b)-2):] {
			choice = choice<<8 | int(c)
		}
		w := workloadOf(b, 8)
		r, err := Do(w)
		require.NoError(t, err, "%s", w)
		at := choice % (r.Disk.Len() + 1)
		j := &Judge{run: r}
		n := 0
		for im := range r.Disk.Images(crashfs.ImageOptions{From: at, To: at + 1, Random: 2, Seed: uint64(choice)}) {
			if n++; n > 200 || mix(im.Hash())%8 != 0 {
				continue
			}
			_, err := j.Image(im)
			require.NoError(t, err, "%s | %d %s", w, im.Point, im.Desc())
		}
	})
}
