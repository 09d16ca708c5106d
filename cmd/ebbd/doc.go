// Ebbd is a server for Redis clients on one Ebb store: what it has acknowledged is on disk.
// `ebbd --help` lists its options, docs/redis.md its commands and how it differs from Redis.
//
// The process has the goroutines of package server, and one that waits for signals. It ends with
// exit code 0 after SIGTERM, SIGINT or SHUTDOWN, 1 after an error, 2 for wrong options.
package main
