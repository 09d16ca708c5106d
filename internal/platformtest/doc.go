// Package platformtest is for tests of what some operating systems refuse. A test that skips
// whatever the error is passes where it should fail: here the systems are named.
package platformtest
