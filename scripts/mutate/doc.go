// Command mutate makes one mistake in the engine at a time, by laying a changed source file over
// the real one, and runs the tests: if they pass, either a test is missing or the code that was
// changed is useless. The mistakes are those of a list, the ones that people make in engines like
// this; see the mutants_*.go files. Run it from the root of the repository.
//
// Each mutant is judged by the suites of its room, the quickest first, each with a time limit; a
// suite that fails or hangs has caught it. The program changes no file of the repository and knows
// nothing of the engine but the list.
package main
