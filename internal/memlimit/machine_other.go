//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package memlimit

func machine() int64 { return 0 }
