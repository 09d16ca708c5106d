package kv_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/ebbkv/ebb/internal/leak"
)

// TestMain removes what the benchmarks share, which no one of them may.
func TestMain(m *testing.M) {
	code := leak.Run(m, os.Stdout)
	if err := removeBenchFile(); err != nil {
		fmt.Println(err)
		code = 1
	}
	os.Exit(code)
}
