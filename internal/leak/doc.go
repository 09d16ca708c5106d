// Package leak fails a test binary whose tests leave goroutines or open files behind: the engine
// keeps no goroutine while no call is in flight, and no descriptor after Close or an Open that
// failed.
//
// Main is called by the TestMain of every package of the engine. The package is for tests only, and
// knows nothing of the engine.
package leak
