//go:build invariant

package invariant

import (
	"math/rand/v2"
	"runtime"
	"time"
)

// On says that whole-page checks run before a page is sealed.
const On = true

// Pause lets others run, now and then for a while. It stands where goroutines meet without a lock:
// between two steps that the processor makes within nanoseconds, a system may let a whole
// checkpoint happen, once in a million times.
func Pause() {
	switch n := rand.Uint32() % 256; {
	case n == 0:
		time.Sleep(time.Duration(rand.Uint32()%300) * time.Microsecond)
	case n < 12:
		runtime.Gosched()
	}
}
