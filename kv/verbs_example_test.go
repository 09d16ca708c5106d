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

// A key that expired is absent from its millisecond on. The clock is set here, so that no time passes.
func ExampleDB_PutTTL() {
	now := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	db, err := kv.OpenMemory(&kv.Options{Clock: func() time.Time { return now }})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	if err := db.PutTTL([]byte("code"), []byte("4711"), 10*time.Minute); err != nil {
		log.Fatal(err)
	}
	now = now.Add(9 * time.Minute)
	left, err := db.TTL([]byte("code"))
	fmt.Println(left, err)
	if err := db.Expire([]byte("code"), 2*time.Minute); err != nil { // the value stays
		log.Fatal(err)
	}
	now = now.Add(2 * time.Minute)
	_, err = db.Get([]byte("code"))
	fmt.Println(errors.Is(err, kv.ErrNotFound))
	// Output:
	// 1m0s <nil>
	// true
}

// A family has its own keys, and may give each of them a ttl: here what is put in it lives for a day.
func ExampleDB_CreateCF() {
	db, err := kv.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	if err := db.CreateCF("drafts", kv.CFOptions{DefaultTTL: 24 * time.Hour}); err != nil {
		log.Fatal(err)
	}
	drafts := db.CF("drafts")
	if err := drafts.Put([]byte("letter"), []byte("Dear Ann")); err != nil {
		log.Fatal(err)
	}
	left, err := drafts.TTL([]byte("letter"))
	fmt.Println(left.Round(time.Hour), err)
	has, err := db.Has([]byte("letter")) // of the family "default"
	fmt.Println(has, err)
	// Output:
	// 24h0m0s <nil>
	// false <nil>
}

// A session lives for half an hour after its last use: one step reads it and keeps it alive.
func ExampleDB_GetAndExpire() {
	db, err := kv.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	if err := db.PutTTL([]byte("session/7"), []byte("ann"), time.Minute); err != nil {
		log.Fatal(err)
	}
	user, err := db.GetAndExpire([]byte("session/7"), 30*time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	left, err := db.TTL([]byte("session/7"))
	fmt.Printf("%s %v %v\n", user, left > 29*time.Minute, err)
	// Output: ann true <nil>
}

// The branches of the tree know how many rows are below them: counting reads a page or two a level.
func ExampleDB_CountRange() {
	db, err := kv.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	err = db.Update(func(tx *kv.Tx) error {
		for _, day := range []string{"05-30", "06-01", "06-02", "06-30", "07-01"} {
			if err := tx.Put([]byte("order/"+day), nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	june, err := db.CountRange([]byte("order/06-"), []byte("order/07-"))
	fmt.Println(june, err)
	// Output: 3 <nil>
}

// Rows get numbers as keys: big-endian, so that they are in order. The number and the row are of one
// transaction, so no number is given twice, and none is lost.
func ExampleTx_NextSequence() {
	db, err := kv.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := db.CreateCF("invoices", kv.CFOptions{}); err != nil {
		log.Fatal(err)
	}

	for _, customer := range []string{"ann", "bob"} {
		err := db.Update(func(tx *kv.Tx) error {
			invoices := tx.CF("invoices")
			number, err := invoices.NextSequence()
			if err != nil {
				return err
			}
			return invoices.Put(binary.BigEndian.AppendUint64(nil, number), []byte(customer))
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	err = db.View(func(tx *kv.Tx) error {
		for number, customer := range tx.CF("invoices").All() {
			fmt.Printf("%d %s\n", binary.BigEndian.Uint64(number), customer)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// 1 ann
	// 2 bob
}

// The lookups of many keys wait for memory together. Keys that are absent have no value.
func ExampleDB_GetMany() {
	db, err := kv.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := db.Put([]byte("ann"), []byte("1")); err != nil {
		log.Fatal(err)
	}
	if err := db.Put([]byte("cid"), []byte("3")); err != nil {
		log.Fatal(err)
	}

	values, err := db.GetMany([][]byte{[]byte("ann"), []byte("bob"), []byte("cid")})
	fmt.Printf("%q %v\n", values, values[1] == nil)
	if err != nil {
		log.Fatal(err)
	}
	// Within a transaction nothing is copied.
	err = db.View(func(tx *kv.Tx) error {
		return tx.GetMany([][]byte{[]byte("cid")}, func(i int, value []byte) bool {
			fmt.Printf("%d %s\n", i, value)
			return true
		})
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// ["1" "" "3"] true
	// 0 3
}

// Measurements of one hour, in partitions of ten minutes. A scan opens only the partitions that it
// needs, and whole partitions are dropped once they are older than the hour.
func ExampleCF_Append() {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	db, err := kv.OpenMemory(&kv.Options{Clock: func() time.Time { return now }})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := db.CreateCF("cpu", kv.CFOptions{Retention: time.Hour,
		Partition: 10 * time.Minute}); err != nil {
		log.Fatal(err)
	}
	cpu := db.CF("cpu")
	for _, percent := range []string{"7", "12", "9"} {
		if err := cpu.Append(now, []byte("host-1"), []byte(percent)); err != nil {
			log.Fatal(err)
		}
		now = now.Add(25 * time.Minute)
	}
	if err := db.View(func(tx *kv.Tx) error {
		for k, v := range tx.CF("cpu").ScanTime(now.Add(-55*time.Minute), time.Time{}, true) {
			fmt.Printf("%s %s %s%%\n", k.Time.UTC().Format("15:04"), k.Key, v)
		}
		return nil
	}); err != nil {
		log.Fatal(err)
	}
	dropped, err := cpu.DropExpired(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(dropped, "partition dropped")
	// Output:
	// 12:50 host-1 9%
	// 12:25 host-1 12%
	// 1 partition dropped
}

// A rollup: before a partition is dropped, the sum of its values is stored under its begin, in the
// same transaction. After a crash both have happened, or neither has.
func ExampleOptions_onDrop() {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	rollup := func(tx *kv.Tx, family string, from, to time.Time) error {
		sum := uint64(0)
		for _, v := range tx.CF(family).ScanTime(from, to, false) {
			sum += binary.BigEndian.Uint64(v)
		}
		return tx.CF("hourly").Put(from.UTC().AppendFormat(nil, "15:04"), fmt.Append(nil, sum))
	}
	db, err := kv.OpenMemory(&kv.Options{Clock: func() time.Time { return now }, OnDrop: rollup})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := db.Update(func(tx *kv.Tx) error {
		if err := tx.CreateCF("hourly", kv.CFOptions{}); err != nil {
			return err
		}
		return tx.CreateCF("requests", kv.CFOptions{Retention: 24 * time.Hour, Partition: time.Hour})
	}); err != nil {
		log.Fatal(err)
	}
	for range 120 {
		if err := db.CF("requests").Append(now, []byte("web"),
			binary.BigEndian.AppendUint64(nil, 10)); err != nil {
			log.Fatal(err)
		}
		now = now.Add(time.Minute)
	}
	now = now.Add(24 * time.Hour)
	if _, err := db.PurgeExpired(context.Background(), kv.PurgeOptions{}); err != nil {
		log.Fatal(err)
	}
	if err := db.View(func(tx *kv.Tx) error {
		for hour, sum := range tx.CF("hourly").All() {
			fmt.Printf("%s %s\n", hour, sum)
		}
		return nil
	}); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 12:00 600
	// 13:00 600
}

// An index by hand: sessions by token, and the tokens of each user. When a session expires its row in
// the index goes in the same transaction, whether a purge, a read or a new session under the same
// token comes first.
func ExampleOptions_onExpireTx() {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	db, err := kv.OpenMemory(&kv.Options{
		Clock: func() time.Time { return now },
		OnExpireTx: func(tx *kv.Tx, family string, token, user []byte) error {
			fmt.Printf("%s of %s expired\n", token, user)
			return tx.CF("by user").Delete(fmt.Appendf(nil, "%s/%s", user, token))
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := db.CreateCF("by user", kv.CFOptions{}); err != nil {
		log.Fatal(err)
	}
	logIn := func(user, token string) error {
		return db.Update(func(tx *kv.Tx) error {
			if err := tx.PutTTL([]byte(token), []byte(user), time.Hour); err != nil {
				return err
			}
			return tx.CF("by user").Put([]byte(user+"/"+token), nil)
		})
	}
	if err := logIn("ann", "token-1"); err != nil {
		log.Fatal(err)
	}
	now = now.Add(40 * time.Minute)
	if err := logIn("ann", "token-2"); err != nil {
		log.Fatal(err)
	}
	now = now.Add(40 * time.Minute)
	if _, err := db.PurgeExpired(context.Background(), kv.PurgeOptions{}); err != nil {
		log.Fatal(err)
	}
	if err := db.View(func(tx *kv.Tx) error {
		for k := range tx.CF("by user").Prefix([]byte("ann/")) {
			fmt.Printf("%s\n", k)
		}
		return nil
	}); err != nil {
		log.Fatal(err)
	}
	// Output:
	// token-1 of ann expired
	// ann/token-2
}
