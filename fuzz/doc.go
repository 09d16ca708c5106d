// Package fuzz proves the engine against a model: workloads of operations run on a simulated disk
// beside Go maps, and an oracle judges what every crash, failed sync or failing call may have left
// behind. Command crashtest and the tests of this package are its users.
//
// A Workload is a base state and a list of operations; it always makes the same trace. Run carries
// one out. Judge is the oracle for one image of a crash. Campaign goes through workloads and images
// on several goroutines until a budget is used up. What fails is shrunk and becomes a line of text
// (see Case) from which it can be repeated.
//
// A Run belongs to one goroutine. Judges share nothing but the set of images that were judged,
// which has a lock. The package looks at the engine through kv alone; of pages and records it knows
// only what a trace shows.
package fuzz
