package leak

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { Main(m) }

// tests stands for the tests of a package.
type tests func() int

func (t tests) Run() int { return t() }

func TestCleanTestsPass(t *testing.T) {
	var out bytes.Buffer
	require.Zero(t, Run(tests(func() int { return 0 }), &out))
	require.Empty(t, out.String())
	require.Equal(t, 3, Run(tests(func() int { return 3 }), &out), "tests that fail have said enough")
	require.Empty(t, out.String())
}

func TestOpenFileIsALeak(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells which files are open")
	}
	name := filepath.Join(t.TempDir(), "left")
	var f *os.File
	var out bytes.Buffer
	require.Equal(t, 1, Run(tests(func() int {
		var err error
		f, err = os.Create(name)
		require.NoError(t, err)
		return 0
	}), &out))
	require.Contains(t, out.String(), name)
	require.NoError(t, f.Close())
}

func TestGoroutineIsALeak(t *testing.T) {
	defer func(was time.Duration) { patience = was }(patience)
	patience = 0
	stop := make(chan struct{})
	var left sync.WaitGroup
	var out bytes.Buffer
	require.Equal(t, 1, Run(tests(func() int {
		for range 8 { // more than can end meanwhile: that of the test before may have been counted
			left.Go(func() { <-stop })
		}
		return 0
	}), &out))
	close(stop)
	left.Wait()
	require.Contains(t, out.String(), " goroutines are left over")
	require.Contains(t, out.String(), "TestGoroutineIsALeak")
}
