package ethstore_test

import (
	"testing"

	"github.com/ethereum/go-ethereum/ethdb"
	"github.com/ethereum/go-ethereum/ethdb/dbtest"

	"github.com/ebbkv/ebb/adapters/ethstore"
	"github.com/ebbkv/ebb/kv"
)

func TestTheSuiteOfGoEthereumPasses(t *testing.T) {
	dbtest.TestDatabaseSuite(t, func() ethdb.KeyValueStore {
		db, err := kv.OpenMemory(&kv.Options{Durability: kv.NoSync})
		if err != nil {
			t.Fatal(err)
		}
		s, err := ethstore.New(db, "chain")
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

func BenchmarkSuite(b *testing.B) {
	dbtest.BenchDatabaseSuite(b, func() ethdb.KeyValueStore {
		db, err := kv.OpenMemory(&kv.Options{Durability: kv.NoSync})
		if err != nil {
			b.Fatal(err)
		}
		s, err := ethstore.New(db, "chain")
		if err != nil {
			b.Fatal(err)
		}
		return s
	})
}
