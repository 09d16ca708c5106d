// Package resp encodes and decodes the Redis serialization protocol, versions 2 and 3: commands as
// arrays of bulk strings or inline, replies of all types.
//
// A Reader and a Writer belong to one goroutine at a time.
//
// The package knows no command, no connection state and no store. Its sources are
// https://redis.io/docs/latest/develop/reference/protocol-spec/ and, for inline commands and
// limits, the behaviour of Redis 7.
package resp
