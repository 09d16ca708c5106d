package kv_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/ebbkv/ebb/kv"
)

// openExample opens a store in memory with a clock that the example moves.
func openExample() (db *kv.DB, sleep func(time.Duration)) {
	now := time.UnixMilli(1_735_000_000_000)
	db, err := kv.OpenMemory(&kv.Options{Clock: func() time.Time { return now }})
	if err != nil {
		log.Fatal(err)
	}
	return db, func(d time.Duration) { now = now.Add(d) }
}

// A session lives for 30 minutes after it was last used: each use slides its expiry, and does not
// rewrite it.
func ExampleFamily_sessionStore() {
	db, sleep := openExample()
	defer db.Close()
	if err := db.CreateCF("sessions", kv.CFOptions{DefaultTTL: 30 * time.Minute}); err != nil {
		log.Fatal(err)
	}
	sessions := db.CF("sessions")
	id := []byte("c0ffee")
	_ = sessions.Put(id, []byte("user 7"))

	for range 3 {
		sleep(20 * time.Minute)
		user, err := sessions.Get(id)
		fmt.Printf("%s %v\n", user, err)
		_ = sessions.Expire(id, 30*time.Minute)
	}
	sleep(30 * time.Minute)
	fmt.Println(sessions.Expire(id, 30*time.Minute))
	// Output:
	// user 7 <nil>
	// user 7 <nil>
	// user 7 <nil>
	// kv: not found
}

// A cache: expired values are computed again. A purge now and then frees the space of values that no
// call asks for.
func ExampleDB_PurgeExpired_cache() {
	db, sleep := openExample()
	defer db.Close()
	lookup := func(key string) string {
		if value, err := db.Get([]byte(key)); err == nil {
			return "cached " + string(value)
		}
		value := "page of " + key
		_ = db.PutTTL([]byte(key), []byte(value), time.Minute)
		return value
	}
	fmt.Println(lookup("a"))
	fmt.Println(lookup("a"))
	sleep(time.Minute)
	result, err := db.PurgeExpired(context.Background(), kv.PurgeOptions{})
	fmt.Println(result.Purged, result.Batches, err)
	fmt.Println(lookup("a"))
	// Output:
	// page of a
	// cached page of a
	// 1 1 <nil>
	// page of a
}

// A rate limiter: at most two calls in a window of one minute, which begins with the first call.
func ExampleDB_Increment_rateLimiter() {
	db, sleep := openExample()
	defer db.Close()
	allowed := func(client string) bool {
		n, err := db.Increment([]byte("calls/"+client), 1, time.Minute)
		return err == nil && n <= 2
	}
	fmt.Println(allowed("x"), allowed("x"), allowed("x"))
	sleep(59 * time.Second)
	fmt.Println(allowed("x"))
	sleep(time.Second)
	fmt.Println(allowed("x"))
	// Output:
	// true true false
	// false
	// true
}

// A one-time code is good once, and for five minutes.
func ExampleDB_CompareAndDelete_oneTimeCode() {
	db, sleep := openExample()
	defer db.Close()
	key := []byte("code/user 7")
	_ = db.PutTTL(key, []byte("123456"), 5*time.Minute)
	fmt.Println(db.CompareAndDelete(key, []byte("000000")))
	fmt.Println(db.CompareAndDelete(key, []byte("123456")))
	fmt.Println(db.CompareAndDelete(key, []byte("123456")))
	_ = db.PutTTL(key, []byte("654321"), 5*time.Minute)
	sleep(5 * time.Minute)
	fmt.Println(db.CompareAndDelete(key, []byte("654321")))
	// Output:
	// false <nil>
	// true <nil>
	// false <nil>
	// false <nil>
}

// A lease has one holder, which renews it; when it expires, exactly one other caller takes it.
func ExampleDB_CompareAndSwap_lease() {
	db, sleep := openExample()
	defer db.Close()
	key := []byte("lease/backup")
	take := func(owner string) bool {
		won, err := db.CompareAndSwap(key, nil, []byte(owner), kv.PutOptions{TTL: time.Minute})
		return err == nil && won
	}
	renew := func(owner string) bool {
		still, err := db.CompareAndSwap(key, []byte(owner), []byte(owner), kv.PutOptions{TTL: time.Minute})
		return err == nil && still
	}
	fmt.Println(take("a"), take("b"))
	sleep(50 * time.Second)
	fmt.Println(renew("a"))
	sleep(50 * time.Second)
	fmt.Println(take("b"))
	sleep(10 * time.Second)
	fmt.Println(take("b"), renew("a"))
	// Output:
	// true false
	// true
	// false
	// true false
}

// An idempotency key makes a request that is sent twice count once, for a day. The answer is stored
// with the effect.
func ExampleTx_PutWith_idempotencyKey() {
	db, _ := openExample()
	defer db.Close()
	pay := func(request string) (answer string, err error) {
		key := []byte("request/" + request)
		err = db.Update(func(tx *kv.Tx) error {
			known, err := tx.Get(key)
			if err == nil {
				answer = string(known) + " (again)"
				return nil
			}
			if !errors.Is(err, kv.ErrNotFound) {
				return err
			}
			n, err := tx.Increment([]byte("payments"), 1, 0)
			if err != nil {
				return err
			}
			answer = fmt.Sprint("payment ", n)
			_, err = tx.PutWith(key, []byte(answer), kv.PutOptions{TTL: 24 * time.Hour})
			return err
		})
		return answer, err
	}
	fmt.Println(pay("r1"))
	fmt.Println(pay("r1"))
	fmt.Println(pay("r2"))
	// Output:
	// payment 1 <nil>
	// payment 1 (again) <nil>
	// payment 2 <nil>
}

// A time series: the key is a name and a big-endian time, so that a range is a stretch of time. A
// point lives for a day from its own time on, however late it comes in.
func ExampleBatchCF_timeSeries() {
	db, sleep := openExample()
	defer db.Close()
	if err := db.CreateCF("points", kv.CFOptions{}); err != nil {
		log.Fatal(err)
	}
	key := func(series string, at time.Time) []byte {
		return binary.BigEndian.AppendUint64([]byte(series+"/"), uint64(at.UnixMilli()))
	}
	start := time.UnixMilli(1_735_000_000_000)
	b := db.NewBatch()
	for hour := range 20 {
		at := start.Add(-time.Duration(hour) * time.Hour)
		b.CF("points").PutExpireAt(key("cpu", at), fmt.Append(nil, hour), at.Add(24*time.Hour))
	}
	fmt.Println(db.Apply(context.Background(), b))

	err := db.View(func(tx *kv.Tx) error { // the newest of the last five hours first
		last := kv.ScanOptions{Lower: key("cpu", start.Add(-5*time.Hour)), Upper: key("cpu", start), Reverse: true}
		for k, value := range tx.CF("points").Scan(last) {
			at := time.UnixMilli(int64(binary.BigEndian.Uint64(k[len("cpu/"):])))
			fmt.Printf("%v: %s\n", at.Sub(start), value)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	sleep(14 * time.Hour)
	fmt.Println(db.CF("points").CountLive())
	result, err := db.CF("points").PurgeExpired(context.Background(), kv.PurgeOptions{})
	fmt.Println(result.Purged, err)
	// Output:
	// <nil>
	// -1h0m0s: 1
	// -2h0m0s: 2
	// -3h0m0s: 3
	// -4h0m0s: 4
	// -5h0m0s: 5
	// 10 <nil>
	// 10 <nil>
}
