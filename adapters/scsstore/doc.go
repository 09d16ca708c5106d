// Package scsstore keeps the sessions of github.com/alexedwards/scs in a family of an Ebb store. An
// expired session is absent from its millisecond on, without a goroutine that cleans up.
package scsstore
