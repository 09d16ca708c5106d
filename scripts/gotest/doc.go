// Gotest runs `go test` of all modules of the workspace and says how many tests ran.
//
//	go run ./scripts/gotest [-bars FILE] [-except DIR,DIR | -only DIR] [-- arguments of go test]
//
// It prints one line for each package, the output of each test that failed, and at the end one line
// of the form "N passed, 0 failed". A test, subtest, example or fuzz seed counts as one; skipped
// ones are counted apart. It exits with 1 if a test failed, if a package did not build, or if a
// package ran fewer tests than FILE asks for: a suite that silently stops running is a failure too.
// No result of an earlier run counts (-count=1).
//
// With -except the modules in DIR are left out, with -only it is the only one; bars of modules that
// are not tested do not count.
//
// FILE holds lines "import-path minimum"; empty lines and lines that begin with # are skipped.
package main
