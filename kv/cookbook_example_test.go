package kv_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/ebbkv/ebb/kv"
)

// A cache with a bound on its size: when a row finds no space, the tenth that expires first makes
// room, and the row is put once more.
func ExampleTx_Expiring_boundedCache() {
	db, err := kv.OpenMemory(&kv.Options{MaxBytes: 32 << 20, Durability: kv.NoSync})
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

	const n = 40_000 // of 1 KB each: more than fit
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
		return errors.Join(
			users.Put(tx, id, u),
			byCity.Put(tx, cityID{First: u.City, Second: id}, ""),
		)
	}
	err = db.Update(func(tx *kv.Tx) error {
		return errors.Join(
			tx.CreateCF("users", kv.CFOptions{}),
			tx.CreateCF("users by city", kv.CFOptions{}),
			put(tx, 1, User{"Ann", "Bern"}),
			put(tx, 2, User{"Bob", "Bern"}),
			put(tx, 3, User{"Cem", "Basel"}),
			put(tx, 1, User{"Ann", "Basel"}),
		)
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
