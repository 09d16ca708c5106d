package workload

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/ebbkv/ebb/cmd/bench/engine"
)

// Sessions of a web server: they are put, read, and expire, for as long as the row lasts. What
// counts is the room that the files take beside the sessions that are alive.
const (
	sessionClients = 16
	sessionValue   = 300
	sessionTTL     = 5 * time.Second // the shortest; the longest has sessionSpread more
	sessionSpread  = 40 * time.Second
	sessionPurge   = 2 * time.Second
	sessionTime    = 50 * time.Second // until the first ones of the longest have expired
)

var sessions = []Workload{{
	Name: "sessions",
	About: "durable puts of sessions of 300 bytes that live 5 to 45 s, and as many gets, by 16 " +
		"goroutines, with a purge each 2 s, for 50 s at 100,000 rows",
	Unit: PerSecond, Durable: true, Clients: sessionClients, WatchDisk: true, Big: true,
	Fixture: Fixture{TTL: true}, Needs: purges, Run: runSessions,
}}

// sessionRun is what the clients of a run share.
type sessionRun struct {
	until  time.Time
	expiry []atomic.Int64 // of each session, in nanoseconds of the store's clock; 0: never put
	ops    atomic.Int64
	purge  atomic.Int64 // when the next purge is due
}

// runSessions has three times as many keys as rows, 300,000 at 100,000.
func runSessions(r *Run) error {
	if err := r.open(); err != nil {
		return err
	}
	s := &sessionRun{expiry: make([]atomic.Int64, 3*r.rows())}
	s.until = time.Now().Add(min(time.Duration(r.rows())*sessionTime/100_000, sessionTime))
	s.purge.Store(time.Now().Add(sessionPurge).UnixNano())
	const row = keySize + sessionValue
	err := r.concurrently(sessionClients, 0, func(c engine.Client, lo, _ int, lat *latencies) error {
		return s.client(c, lo, lat)
	})
	if err != nil {
		return err
	}
	done := float64(s.ops.Load())
	r.Result.Value, r.Result.CPU = done/r.Result.Seconds, r.Result.CPU*sessionClients/done
	live := 0
	for i := range s.expiry {
		if s.expiry[i].Load() > time.Now().UnixNano() {
			live++
		}
	}
	r.Result.Data = int64(live) * row
	return r.withClient(s.check)
}

// client puts and reads its share of the sessions, and purges when that is due.
func (s *sessionRun) client(c engine.Client, no int, lat *latencies) error {
	rng, a := rand.New(rand.NewPCG(uint64(no), 5)), newArena(1, sessionValue)
	for now := time.Now(); now.Before(s.until); now = time.Now() {
		i := rng.IntN(len(s.expiry)/sessionClients)*sessionClients + no
		k, v := a.row(hashed, i, sessionValue, 0)
		if rng.IntN(2) == 0 {
			if _, err := c.Get(k, func([]byte) {}); err != nil {
				return err
			}
		} else {
			ttl := sessionTTL + time.Duration(rng.Int64N(int64(sessionSpread)))
			err := c.Batch(func(w engine.Writer) error { return w.(engine.ExpiringWriter).PutTTL(k, v, ttl) })
			if err != nil {
				return err
			}
			s.expiry[i].Store(now.Add(ttl).UnixNano())
			lat.add(time.Since(now))
		}
		s.ops.Add(1)
		due, next := s.purge.Load(), now.Add(sessionPurge).UnixNano()
		if now.UnixNano() > due && s.purge.CompareAndSwap(due, next) {
			if _, err := c.(engine.Purger).Purge(gentleBatch); err != nil {
				return err
			}
		}
	}
	return nil
}

// check fails if a session is gone before its time, or there after it.
func (s *sessionRun) check(c engine.Client) error {
	key := make([]byte, keySize)
	for i := 0; i < len(s.expiry); i += 97 {
		expiry := time.Unix(0, s.expiry[i].Load())
		before := time.Now()
		found, err := c.Get(hashed.key(key, i), func([]byte) {})
		if err != nil {
			return err
		}
		if found && before.After(expiry.Add(time.Second)) || !found && time.Now().Before(expiry) {
			return fmt.Errorf("wrong answer: session %d, found %v, expires in %v", i, found,
				time.Until(expiry))
		}
	}
	return nil
}
