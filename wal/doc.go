// Package wal appends byte payloads to a log kept in segment files, makes them durable by group
// commit (one write and one sync for all waiters), and reads them back by LSN after a crash. For
// the first invalid record it decides whether that is the torn end of the log or damage to durable
// bytes.
//
// One goroutine at a time may Append, Abort or Rotate (the caller's writer lock); any number may
// Wait, Sync and read positions meanwhile. Prepare and Release may run beside both, each not beside
// itself. A waiter whose commit is not in flight becomes the leader if there is none, and leads for
// the whole queue. A ScanResult is for one goroutine.
//
// The package knows no pages, keys or transactions, and never decodes a payload. The caller records
// the position from which replay starts.
package wal
