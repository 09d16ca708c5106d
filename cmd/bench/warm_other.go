//go:build !linux

package main

// warmHuge does nothing where huge pages are not asked for.
func warmHuge(int) {}
