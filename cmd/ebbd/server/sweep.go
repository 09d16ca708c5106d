package server

import (
	"errors"
	"time"

	"github.com/ebbkv/ebb/kv"
)

const sweepStep = 256 // collections that are looked at in one read transaction

// sweepOnce sweeps after the start.
func (s *Server) sweepOnce() {
	if _, err := s.sweep(); err != nil && !errors.Is(err, kv.ErrClosed) {
		s.log.Error("sweep for dead collections", "error", err)
	}
}

// sweep retires the collections that no key names, and returns their number. A purge by another
// program leaves such, and so did versions of this server that retired them in a later transaction.
func (s *Server) sweep() (retired int, err error) {
	for db := range s.o.Databases {
		for last := uint64(0); ; {
			var dead []uint64
			err := s.db.View(func(tx *kv.Tx) (err error) {
				dead, last, err = s.store.Space(tx, db).Sweep(last, sweepStep)
				return err
			})
			if err != nil {
				return retired, err
			}
			if len(dead) > 0 {
				err := s.exec.do(func(tx *kv.Tx) error {
					n, err := s.store.Space(tx, db).RetireDead(dead)
					retired += n
					return err
				})
				if err != nil {
					return retired, err
				}
			}
			if last == 0 {
				break
			}
			select {
			case <-s.endTicks:
				return retired, nil
			case <-time.After(time.Millisecond): // lets commands run between
			}
		}
	}
	return retired, nil
}
