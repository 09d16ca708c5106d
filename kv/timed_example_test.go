package kv_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"time"

	"github.com/ebbkv/ebb/kv"
)

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
