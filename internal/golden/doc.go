// Package golden holds bytes of the file format against files in testdata that a person can read.
// It is for tests.
//
// A golden file has a line for each field: its offset and its bytes, both hexadecimal, and a
// remark. To change one is to change the format; go test -update rewrites those of a package, make
// golden all of them.
package golden
