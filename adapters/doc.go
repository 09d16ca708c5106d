// Package adapters has no code: its folders let other projects keep their data in an Ebb store.
//
//	certstore    certmagic: certificates, keys and locks
//	ethstore     go-ethereum: the key-value store below its chain database
//	fiberstore   Fiber: storage of sessions, limiter and cache
//	gokvstore    gokv: values of any type under string keys
//	ratecounter  httprate: counters of a rate limiter
//	raftstore    hashicorp/raft: log and stable state
//	scsstore     scs: HTTP sessions
//
// Each one takes an open store and the name of a family, which it creates if absent. Several may
// share a store, each with a family of its own. Close of an adapter closes no store: its opener does.
package adapters
