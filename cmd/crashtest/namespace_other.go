//go:build !linux

package main

// isolateMounts does nothing: only Linux has modes that mount.
func isolateMounts([]string) {}
