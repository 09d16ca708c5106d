//go:build !linux

package limit

import "os"

var methods = []method{{"write + fsync", openBuffered, 1, (*os.File).Sync}}

func aligned(n int) []byte { return make([]byte, n) }
