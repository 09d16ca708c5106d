package bound

import (
	"fmt"
	"runtime/metrics"
	"testing"
	"time"
)

// Patience only tells a hang from work: on a machine with much to do, under the race detector, no
// input of a fuzz target comes near it.
const Patience = time.Minute

// Hold begins an account, and the function that it returns fails the test if more than most bytes
// were allocated since. If that function is not called within Patience the process ends with a
// panic, for whatever hangs cannot be stopped.
func Hold(t testing.TB, most uint64) (done func()) {
	t.Helper()
	stop := Watch(Patience)
	before := Allocated()
	return func() {
		t.Helper()
		stop()
		if used := Allocated() - before; used > most && !t.Failed() {
			t.Errorf("%d bytes were allocated, at most %d may be", used, most)
		}
	}
}

// Watch ends the process with a panic unless stop is called in time.
func Watch(limit time.Duration) (stop func() bool) {
	return time.AfterFunc(limit, func() { panic(fmt.Sprintf("bound: not done after %v", limit)) }).Stop
}

// Allocated counts the bytes that were ever allocated on the heap.
func Allocated() uint64 {
	sample := [1]metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample[:])
	return sample[0].Value.Uint64()
}
