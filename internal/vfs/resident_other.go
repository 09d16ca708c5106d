//go:build !linux

package vfs

func resident([]byte) bool { return false }
