package kv_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/ebbkv/ebb/kv"
)

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
