package server

import (
	"errors"
	"time"

	"github.com/ebbkv/ebb/kv"
)

const (
	sweepStep  = 256 // collections that are looked at in one read transaction
	sweepEvery = time.Minute
)

// sweepLoop sweeps after the start and then, at most once a minute, whenever an id may have been
// lost.
func (s *Server) sweepLoop() {
	wait := time.NewTimer(0)
	defer wait.Stop()
	for first := true; ; first = false {
		select {
		case <-s.endTicks:
			return
		case <-wait.C:
		}
		if first || s.store.TakeSuspect() {
			if _, err := s.sweep(); err != nil && !errors.Is(err, kv.ErrClosed) {
				s.log.Error("sweep for dead collections", "error", err)
			}
		}
		wait.Reset(sweepEvery)
	}
}

// sweep retires the collections that no key names, and returns their number. A crash, or a purge by
// another program, leaves such.
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
