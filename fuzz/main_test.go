package fuzz

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"testing"
)

// TestMain fails if a goroutine outlives the tests: the engine keeps none while no call is in flight.
func TestMain(m *testing.M) {
	before := runtime.NumGoroutine()
	code := m.Run()
	for range 1000 { // Those that have finished their work may still be on their way out.
		if runtime.NumGoroutine() <= before {
			break
		}
		runtime.Gosched()
	}
	// The fuzzing engine of the go command leaves goroutines of its own.
	fuzzing := flag.Lookup("test.fuzz").Value.String() != ""
	if n := runtime.NumGoroutine(); n > before && code == 0 && !fuzzing {
		fmt.Printf("%d goroutines are left over\n", n-before)
		_ = pprof.Lookup("goroutine").WriteTo(os.Stdout, 1)
		code = 1
	}
	os.Exit(code)
}
