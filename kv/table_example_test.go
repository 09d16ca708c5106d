package kv_test

import (
	"fmt"
	"log"
	"time"

	"github.com/ebbkv/ebb/kv"
)

// A table has keys and values of Go types. The keys here are pairs: all visits of a user are next to
// each other, oldest first.
func ExampleTable() {
	db, err := kv.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := db.EnsureCF("visits", kv.CFOptions{}); err != nil {
		log.Fatal(err)
	}

	type Visit struct{ Page string }
	type key = kv.Tuple[string, time.Time]
	keys := kv.Pair(kv.String, kv.Time)
	visits := kv.NewTable("visits", keys, kv.JSON[Visit]())

	noon := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	err = db.Update(func(tx *kv.Tx) error {
		for i, page := range []string{"/", "/prices", "/order"} {
			k := key{First: "ann", Second: noon.Add(time.Duration(i) * time.Minute)}
			if err := visits.PutTTL(tx, k, Visit{page}, 24*time.Hour); err != nil {
				return err
			}
		}
		return visits.PutTTL(tx, key{First: "bob", Second: noon}, Visit{"/"}, 24*time.Hour)
	})
	if err != nil {
		log.Fatal(err)
	}

	err = db.View(func(tx *kv.Tx) error {
		ofAnn, err := keys.Prefix("ann")
		if err != nil {
			return err
		}
		for k, visit := range visits.Prefix(tx, ofAnn) {
			fmt.Println(k.Second.Format(time.TimeOnly), visit.Page)
		}
		return nil // an error of the range is returned by View
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// 12:00:00 /
	// 12:01:00 /prices
	// 12:02:00 /order
}
