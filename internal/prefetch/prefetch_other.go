//go:build !amd64 && !arm64

package prefetch

// Bytes does nothing here.
func Bytes([]byte) {}

// Each does nothing here.
func Each([][]byte) {}
