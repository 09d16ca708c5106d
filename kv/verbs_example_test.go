package kv_test

import (
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
