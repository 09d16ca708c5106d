//go:build !linux

package vfs

import "os"

func cacheAhead(*os.File, int64, int64) {}
func dropCache(*os.File, int64, int64)  {}
