package kvtest_test

import (
	"testing"
	"time"

	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/kv/kvtest"
)

// A test of a program's own: its sessions are gone after an hour, and survive a power cut until then.
func Example() {
	_ = func(t *testing.T) {
		clock := kvtest.NewClock(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC))
		disk := kvtest.NewDisk(t)
		db := disk.Open("sessions.ebb", &kv.Options{Clock: clock.Now})
		if err := db.PutTTL([]byte("c0ffee"), []byte("ann"), time.Hour); err != nil {
			t.Fatal(err)
		}
		disk.PowerCut(1)

		db = disk.Open("sessions.ebb", &kv.Options{Clock: clock.Now})
		if _, err := db.Get([]byte("c0ffee")); err != nil {
			t.Error(err)
		}
		clock.Advance(time.Hour)
		if _, err := db.Get([]byte("c0ffee")); err == nil {
			t.Error("the session outlived its hour")
		}
	}
}
