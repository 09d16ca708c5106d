package crashfs

import (
	"sync"
)

// Seen remembers images, so that each is judged once. Many runs may share it.
type Seen struct {
	mu sync.Mutex
	m  map[uint64]struct{}
}

// NewSeen gives an empty set.
func NewSeen() *Seen { return &Seen{m: map[uint64]struct{}{}} }

// Len is the number of images remembered.
func (s *Seen) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.m)
}

// add reports whether key is new.
func (s *Seen) add(key uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.m[key]; ok {
		return false
	}
	s.m[key] = struct{}{}
	return true
}
