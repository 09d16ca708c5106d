// Package memlimit reports how much memory this process may use.
//
// All calls are safe for concurrent use. The package reads the limits that the system reports; it
// enforces none, and knows nothing of what the memory is for.
package memlimit
