// Package wal appends byte payloads to a log kept in segment files, makes them durable with one
// write and one sync for all who are waiting, and reads them back by LSN after a crash. It decides,
// for the first record that does not check out, whether it is the torn end of the log or damage to
// what was promised.
//
// One goroutine at a time may Append, Abort or Rotate (the caller's writer lock); any number may
// Wait, Sync and read positions meanwhile. Prepare and Release may run beside both, each not beside
// itself. Whoever waits for what is not on its way and finds nobody leading leads for all that is
// queued. A Found is for one goroutine.
//
// It knows no pages, keys or transactions, and never looks into a payload. It does not know either
// from which position replay has to start: that is written down by the caller.
package wal
