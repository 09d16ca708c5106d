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

// A cache with a bound on its size: when a row finds no space, the tenth that expires first makes
// room, and the row is put once more.
func ExampleTx_Expiring_boundedCache() {
	db, err := kv.OpenMemory(&kv.Options{MaxBytes: 8 << 20, Durability: kv.NoSync})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	evict := func(tx *kv.Tx) error {
		rows, err := tx.Count()
		if err != nil {
			return err
		}
		for key := range tx.Expiring(time.Time{}) {
			if rows -= 10; rows < 0 {
				break
			}
			if err := tx.Delete(key); err != nil {
				return err
			}
		}
		return nil
	}
	put := func(key, value []byte) error {
		err := db.PutTTL(key, value, time.Hour)
		if errors.Is(err, kv.ErrNoSpace) {
			if err = db.Update(evict); err == nil {
				err = db.PutTTL(key, value, time.Hour)
			}
		}
		return err
	}

	const n = 10_000 // of 1 KB each: more than fit
	for i := range n {
		if err := put(fmt.Appendf(nil, "page %d", i), make([]byte, 1000)); err != nil {
			log.Fatal(err)
		}
	}
	first, _ := db.Has([]byte("page 0"))
	last, _ := db.Has(fmt.Appendf(nil, "page %d", n-1))
	fmt.Println(first, last)
	// Output: false true
}

// A queue whose jobs outlive a worker that dies. A job's key begins with the instant from which a
// worker may take it. Taking it moves it a minute ahead; done deletes it; else it is due again then.
func ExampleTable_jobQueue() {
	db, sleep := openExample()
	defer db.Close()
	type key = kv.Tuple[time.Time, string]
	jobs := kv.NewTable("default", kv.Pair(kv.Time, kv.String), kv.String)

	take := func() (k key, job string, err error) {
		err = db.Update(func(tx *kv.Tx) error {
			for due, what := range jobs.All(tx) {
				if due.First.After(tx.Now()) {
					break
				}
				job, k = what, key{First: tx.Now().Add(time.Minute), Second: due.Second}
				return errors.Join(jobs.Delete(tx, due), jobs.Put(tx, k, what))
			}
			return nil
		})
		return k, job, err
	}
	done := func(k key) error {
		return db.Update(func(tx *kv.Tx) error { return jobs.Delete(tx, k) })
	}

	_ = db.Update(func(tx *kv.Tx) error {
		return jobs.Put(tx, key{First: tx.Now(), Second: "1"}, "send the invoice")
	})
	_, job, err := take() // by a worker that dies
	fmt.Printf("%q %v\n", job, err)
	_, job, err = take()
	fmt.Printf("%q %v\n", job, err)
	sleep(time.Minute)
	k, job, err := take()
	fmt.Printf("%q %v\n", job, err)
	fmt.Println(done(k))
	sleep(time.Minute)
	_, job, err = take()
	fmt.Printf("%q %v\n", job, err)
	// Output:
	// "send the invoice" <nil>
	// "" <nil>
	// "send the invoice" <nil>
	// <nil>
	// "" <nil>
}

// A secondary index by hand: one transaction changes the row and the index.
func ExampleTable_secondaryIndex() {
	db, err := kv.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	type User struct{ Name, City string }
	type cityID = kv.Tuple[string, uint64]
	cityKeys := kv.Pair(kv.String, kv.Uint64)
	users := kv.NewTable("users", kv.Uint64, kv.JSON[User]())
	byCity := kv.NewTable("users by city", cityKeys, kv.String)

	put := func(tx *kv.Tx, id uint64, u User) error {
		switch old, err := users.Get(tx, id); {
		case err == nil:
			if err := byCity.Delete(tx, cityID{First: old.City, Second: id}); err != nil {
				return err
			}
		case !errors.Is(err, kv.ErrNotFound):
			return err
		}
		return errors.Join(users.Put(tx, id, u),
			byCity.Put(tx, cityID{First: u.City, Second: id}, ""))
	}
	err = db.Update(func(tx *kv.Tx) error {
		return errors.Join(tx.CreateCF("users", kv.CFOptions{}),
			tx.CreateCF("users by city", kv.CFOptions{}), put(tx, 1, User{"Ann", "Bern"}),
			put(tx, 2, User{"Bob", "Bern"}), put(tx, 3, User{"Cem", "Basel"}),
			put(tx, 1, User{"Ann", "Basel"}))
	})
	if err != nil {
		log.Fatal(err)
	}
	err = db.View(func(tx *kv.Tx) error {
		prefix, err := cityKeys.Prefix("Basel")
		if err != nil {
			return err
		}
		for k := range byCity.Prefix(tx, prefix) {
			u, err := users.Get(tx, k.Second)
			if err != nil {
				return err
			}
			fmt.Println(k.Second, u.Name)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// 1 Ann
	// 3 Cem
}

// Pages of a list: each request begins behind the last key that the client has seen. The key with a
// zero byte appended is the one that follows it.
func ExampleScanOptions_pagination() {
	db, err := kv.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	b := db.NewBatch()
	for i := range 7 {
		b.Put(fmt.Appendf(nil, "item %d", i), nil)
	}
	if err := db.Apply(context.Background(), b); err != nil {
		log.Fatal(err)
	}

	page := func(last []byte) (keys []string, err error) {
		o := kv.ScanOptions{Prefix: []byte("item "), Limit: 3, KeysOnly: true}
		if last != nil {
			o.Lower = append(last[:len(last):len(last)], 0)
		}
		err = db.View(func(tx *kv.Tx) error {
			for key := range tx.Scan(o) {
				keys = append(keys, string(key))
			}
			return nil
		})
		return keys, err
	}
	var last []byte
	for {
		keys, err := page(last)
		fmt.Println(keys, err)
		if err != nil || len(keys) == 0 {
			break
		}
		last = []byte(keys[len(keys)-1])
	}
	// Output:
	// [item 0 item 1 item 2] <nil>
	// [item 3 item 4 item 5] <nil>
	// [item 6] <nil>
	// [] <nil>
}

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
		last := kv.ScanOptions{Lower: key("cpu", start.Add(-5*time.Hour)), Upper: key("cpu", start),
			Reverse: true}
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
