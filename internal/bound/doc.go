// Package bound says how much memory and time a test may spend on bytes that someone else has
// chosen: a number in a file must not make a decoder allocate what the file is no reason for, and
// no link must lead it round in a circle.
//
// The heap is counted as a whole: the caller runs nothing else meanwhile. It is for tests and for
// the crash bed, and knows nothing of the engine.
package bound
