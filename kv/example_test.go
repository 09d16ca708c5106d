package kv_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/ebbkv/ebb/kv"
)

func Example() {
	dir, err := os.MkdirTemp("", "ebb")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	db, err := kv.Open(filepath.Join(dir, "app.ebb"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	// Update commits if the function returns nil: then the change survives any crash.
	err = db.Update(func(tx *kv.Tx) error {
		return tx.Put([]byte("greeting"), []byte("hello"))
	})
	if err != nil {
		log.Fatal(err)
	}

	// View sees one state of the store, whatever writers do meanwhile.
	err = db.View(func(tx *kv.Tx) error {
		value, err := tx.Get([]byte("greeting"))
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", value)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: hello
}

func ExampleOpenMemory() {
	db, err := kv.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	fmt.Println(db.Put([]byte("k"), []byte("v")))
	value, err := db.Get([]byte("k"))
	fmt.Printf("%s %v\n", value, err)
	_, err = db.Get([]byte("absent"))
	fmt.Println(errors.Is(err, kv.ErrNotFound))
	// Output:
	// <nil>
	// v <nil>
	// true
}

// One transaction spans any number of families: money does not get lost between them.
func ExampleTx_CF() {
	db, err := kv.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	err = db.Update(func(tx *kv.Tx) error {
		for _, name := range []string{"accounts", "journal"} {
			if err := tx.CreateCF(name, kv.CFOptions{}); err != nil {
				return err
			}
		}
		if _, err := tx.CF("accounts").Increment([]byte("ann"), 25, 0); err != nil {
			return err
		}
		return tx.CF("journal").Put([]byte("0001"), []byte("ann +25"))
	})
	if err != nil {
		log.Fatal(err)
	}
	names, err := db.ListCFs()
	fmt.Println(names, err)
	entry, err := db.CF("journal").Get([]byte("0001"))
	fmt.Printf("%s %v\n", entry, err)
	// Output:
	// [accounts default journal] <nil>
	// ann +25 <nil>
}

func ExampleTx_Scan() {
	db, err := kv.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	err = db.Update(func(tx *kv.Tx) error {
		for _, fruit := range []string{"apple", "apricot", "banana", "cherry"} {
			if err := tx.Put([]byte(fruit), []byte{byte('0' + len(fruit))}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}

	err = db.View(func(tx *kv.Tx) error {
		for key, value := range tx.Prefix([]byte("ap")) {
			fmt.Printf("%s %s\n", key, value)
		}
		o := kv.ScanOptions{Lower: []byte("b"), Reverse: true, KeysOnly: true, Limit: 1}
		for key := range tx.Scan(o) {
			fmt.Printf("the last one from b on is %s\n", key)
		}
		return nil // An error of the ranges would be returned by View.
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// apple 5
	// apricot 7
	// the last one from b on is cherry
}

func ExampleCursor() {
	db, err := kv.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	err = db.Update(func(tx *kv.Tx) error {
		for i := range 6 {
			if err := tx.Put(fmt.Appendf(nil, "job-%d", i), nil); err != nil {
				return err
			}
		}
		// Every second job is done: delete it on the way.
		c := tx.Cursor()
		for ok := c.First(); ok; ok = c.Next() {
			if (c.Key()[4]-'0')%2 == 0 {
				if err := c.Delete(); err != nil {
					return err
				}
			}
		}
		for ok := c.Last(); ok; ok = c.Prev() {
			fmt.Printf("%s\n", c.Key())
		}
		return c.Err()
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// job-5
	// job-3
	// job-1
}

func ExampleDB_Apply() {
	db, err := kv.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	b := db.NewBatch()
	b.Put([]byte("a"), []byte("1"))
	b.Put([]byte("b"), []byte("2"))
	b.Delete([]byte("a"))
	fmt.Println(b.Len(), db.Apply(context.Background(), b))
	fmt.Println(db.Count())
	// Output:
	// 3 <nil>
	// 1 <nil>
}

// A transaction of one's own, for code that is no function: end it in every case, and wait for
// other writers no longer than the context allows.
func ExampleDB_Begin() {
	db, err := kv.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	tx, err := db.Begin(ctx, true)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback() // does nothing after Commit

	fmt.Println(tx.Put([]byte("a"), []byte("1")))
	before := tx.Savepoint()
	fmt.Println(tx.Put([]byte("b"), []byte("2")))
	fmt.Println(tx.RollbackTo(before))
	fmt.Println(tx.Commit())
	fmt.Println(db.Has([]byte("a")))
	fmt.Println(db.Has([]byte("b")))
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// <nil>
	// true <nil>
	// false <nil>
}

// The fastest way in: rows in the order of their keys, into an empty family.
func ExampleDB_BulkLoad() {
	db, err := kv.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	squares := func(yield func(key, value []byte) bool) {
		var key [8]byte
		for i := range uint64(1000) {
			// Big-endian numbers are in order; the slices may be used again.
			binary.BigEndian.PutUint64(key[:], i)
			if !yield(key[:], fmt.Append(nil, i*i)) {
				return
			}
		}
	}
	fmt.Println(db.BulkLoad(context.Background(), "default", squares))
	value, err := db.Get(binary.BigEndian.AppendUint64(nil, 12))
	fmt.Printf("%s %v\n", value, err)
	// Output:
	// 1000 <nil>
	// 144 <nil>
}

// Commits that do not wait for the disk, and one sync for all of them.
func ExampleDB_Sync() {
	db, err := kv.OpenMemory(&kv.Options{Durability: kv.NoSync})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	for i := range byte(3) {
		if err := db.Put([]byte{'k', '0' + i}, nil); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(db.Sync()) // Now a power cut takes none of them.

	// One transaction may ask for more than the store's default.
	fmt.Println(db.Update(func(tx *kv.Tx) error {
		tx.SetDurability(kv.Sync)
		return tx.Put([]byte("k3"), nil)
	}))
	fmt.Println(db.Count())
	// Output:
	// <nil>
	// <nil>
	// 4 <nil>
}

// Check proves the whole store, and names what is wrong.
func ExampleDB_Check() {
	db, err := kv.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	sound := true
	for problem := range db.Check(context.Background()) {
		sound = false
		fmt.Println(problem)
	}
	fmt.Println(sound)
	// Output: true
}

// The store of a service: it waits a moment for the process that it replaces, purges in the
// background, and its end waits for transactions that are open.
func ExampleDB_Shutdown() {
	dir, err := os.MkdirTemp("", "ebb")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	db, err := kv.Open(filepath.Join(dir, "app.ebb"), &kv.Options{
		LockTimeout: 10 * time.Second,
		AutoPurge:   &kv.AutoPurge{Interval: time.Minute},
		Logger:      slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(db.PutTTL([]byte("session"), []byte("user 7"), 30*time.Minute))

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	fmt.Println(db.Shutdown(ctx))
	_, err = db.Get([]byte("session"))
	fmt.Println(errors.Is(err, kv.ErrClosed))
	// Output:
	// <nil>
	// <nil>
	// true
}

// A full backup, an increment, and the store that both of them make.
func ExampleDB_Compact() {
	db, err := kv.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	for i := range 1000 {
		_ = db.Put(fmt.Appendf(nil, "%04d", i*7%1000), make([]byte, 5000))
	}
	_ = db.DeleteRange([]byte("0010"), nil)

	var r kv.CompactResult
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := db.Compact(ctx, kv.CompactOptions{Result: &r}); err != nil {
		log.Fatal(err) // a context that ends stops it between two steps; a later call goes on
	}
	fmt.Println("shorter:", r.BytesAfter < r.BytesBefore/4, "limited by:", r.LimitedBy == "")
	// Output:
	// shorter: true limited by: true
}

func ExampleDB_Backup() {
	dir, err := os.MkdirTemp("", "ebb")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := kv.Open(filepath.Join(dir, "app.ebb"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	var full, increment bytes.Buffer // files, as a rule
	_ = db.Put([]byte("a"), []byte("1"))
	info, err := db.Backup(context.Background(), &full, kv.BackupOptions{})
	if err != nil {
		log.Fatal(err)
	}
	_ = db.Put([]byte("b"), []byte("2"))
	_, err = db.Backup(context.Background(), &increment, kv.BackupOptions{Since: &info})
	if err != nil {
		log.Fatal(err)
	}

	path := filepath.Join(dir, "restored.ebb")
	if err := kv.Restore(context.Background(), path, &full, &increment); err != nil {
		log.Fatal(err)
	}
	restored, err := kv.Open(path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer restored.Close()
	_ = restored.View(func(tx *kv.Tx) error {
		for k, v := range tx.All() {
			fmt.Printf("%s=%s\n", k, v)
		}
		return tx.Err()
	})
	// Output:
	// a=1
	// b=2
}
