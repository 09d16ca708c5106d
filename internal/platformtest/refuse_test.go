package platformtest

import (
	"errors"
	"runtime"
	"testing"
)

// told notes how a test would have ended.
type told struct {
	testing.TB
	end string
}

func (t *told) Helper()              {}
func (t *told) Skipf(string, ...any) { t.end = "skipped" }
func (t *told) Fatal(...any)         { t.end = "failed" }

// TestOnlyNamedSystemsMayRefuse: an error is a failure on all others, and no error is none
// anywhere.
func TestOnlyNamedSystemsMayRefuse(t *testing.T) {
	refused := errors.New("refused")
	for _, c := range []struct {
		err     error
		systems []string
		want    string
	}{
		{nil, []string{runtime.GOOS}, ""},
		{nil, nil, ""},
		{refused, []string{"plan9", runtime.GOOS}, "skipped"},
		{refused, []string{"plan9"}, "failed"},
		{refused, nil, "failed"},
	} {
		var got told
		MayRefuse(&got, c.err, c.systems...)
		if got.end != c.want {
			t.Errorf("%v on %v: %q, want %q", c.err, c.systems, got.end, c.want)
		}
	}
}
