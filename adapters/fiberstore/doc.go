// Package fiberstore keeps what the middlewares of github.com/gofiber/fiber store (sessions, cache,
// limiter, csrf tokens, idempotency keys) in a family of an Ebb store.
package fiberstore
