// Package certstore keeps the certificates and keys of github.com/caddyserver/certmagic in a family
// of an Ebb store: each change is durable and whole when its call returns.
package certstore
