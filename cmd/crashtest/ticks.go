package main

import (
	"fmt"
	"io"
	"time"
)

// tickEvery is how long a mode is silent. A test that wants to hear all of it sets it to 0.
var tickEvery = 2 * time.Second

// ticks gives a function that prints what was done so far, a line now and then. Calls of it must
// not overlap.
func ticks[R any](w io.Writer, line func(R) string) func(R) {
	last := time.Now()
	return func(r R) {
		if time.Since(last) >= tickEvery {
			last = time.Now()
			fmt.Fprintln(w, line(r))
		}
	}
}
