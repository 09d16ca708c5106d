// Package keyorder finds the order of keys that lie anywhere in memory, without moving them.
//
// Keys of one tree share how they begin, and what comes behind that decides soon: four bytes of it,
// the head, are sorted by places, and only keys of equal heads are looked at once more.
package keyorder
