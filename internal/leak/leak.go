package leak

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"
)

// patience is how long goroutines that have done their work may take to end on a busy machine. Only
// a leak waits so long.
var patience = 10 * time.Second

// Main runs the tests and ends the process: with status 1 if they pass and leave something behind.
func Main(m *testing.M) { os.Exit(Run(m, os.Stdout)) }

// Run is Main that returns the status.
func Run(m interface{ Run() int }, out io.Writer) int {
	goroutines, files := runtime.NumGoroutine(), openFiles()
	code := m.Run()
	// The fuzzing engine of the go command has goroutines and files of its own.
	if f := flag.Lookup("test.fuzz"); code != 0 || f != nil && f.Value.String() != "" {
		return code
	}
	for end := time.Now().Add(patience); runtime.NumGoroutine() > goroutines && time.Now().Before(end); {
		runtime.Gosched()
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		fmt.Fprintf(out, "%d goroutines are left over\n", n-goroutines)
		var b bytes.Buffer
		_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
		fmt.Fprint(out, b.String())
		code = 1
	}
	for _, name := range openFiles() {
		if !slices.Contains(files, name) {
			fmt.Fprintf(out, "%s is left open\n", name)
			code = 1
		}
	}
	return code
}

// openFiles lists the regular files that the process has open, on systems that report them; elsewhere
// none.
func openFiles() (names []string) {
	const dir = "/proc/self/fd"
	fds, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, fd := range fds {
		name, err := os.Readlink(filepath.Join(dir, fd.Name()))
		if err == nil && strings.HasPrefix(name, "/") && !strings.HasPrefix(name, "/dev/") &&
			!strings.HasPrefix(name, "/proc/") {
			names = append(names, name)
		}
	}
	return names
}
