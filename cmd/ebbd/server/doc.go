// Package server answers the Redis protocol from one Ebb store.
//
// Each connection has a goroutine that reads commands, runs them and writes their replies. Commands
// that only read run there, in a read transaction that the commands of one pipeline share. From the
// first command that writes, the rest of a pipeline goes to the executor: one goroutine, which runs
// what all connections have queued in one write transaction, a turn, and sends the replies, or gives
// them back, when that transaction is durable. So the commands of a turn share one instant and one
// sync.
//
// A conn belongs to its own goroutine, and to the executor while its commands are in a turn. Fields
// of a Server that change have the mutex that stands above them.
//
// The package knows no layout of rows (package keyspace) and no encoding (package resp).
package server
