package fuzz

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"
)

// TestMain fails if a goroutine outlives the tests: the engine keeps none while no call is in flight.
func TestMain(m *testing.M) {
	before := runtime.NumGoroutine()
	code := m.Run()
	// Those that have finished their work may still be on their way out, on a busy machine for a while.
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
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
