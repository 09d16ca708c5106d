package txn

import (
	"sync/atomic"
	"testing"
)

// TestWaitGroupIsReusableWhileOthersJoin it repeatedly. Each wait must find a moment without members.
func TestWaitGroupIsReusableWhileOthersJoin(t *testing.T) {
	var c waitGroup
	var ran atomic.Int64
	c.wait()
	comers := make(chan struct{})
	go func() {
		defer close(comers)
		for range 10_000 {
			c.run(func() { ran.Add(1) })
		}
	}()
	for waiting := true; waiting; {
		c.wait()
		select {
		case <-comers:
			waiting = false
		default:
		}
	}
	c.wait()
	if ran.Load() != 10_000 {
		t.Errorf("%d have run", ran.Load())
	}
}
