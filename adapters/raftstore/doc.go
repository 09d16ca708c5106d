// Package raftstore keeps the log and the stable state of github.com/hashicorp/raft in two families
// of an Ebb store. Every change is durable when its call returns.
package raftstore
