// Package memlimit tells how much memory this process may use.
//
// All calls are safe for concurrent use. The package reads what the system tells of limits; it
// enforces none, and knows nothing of what the memory is for.
package memlimit
