//go:build !linux

package main

import "fmt"

// fuseFile exists on Linux.
type fuseFile struct{}

func serveFile(string, *cacheDisk) (*fuseFile, error) {
	return nil, fmt.Errorf("%w: FUSE needs Linux", errNoMounts)
}

func (*fuseFile) close() error { return nil }
