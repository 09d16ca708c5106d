package kv_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/ebbkv/ebb/kv"
)

// A backup of the store in use, over HTTP. The status is sent before the first byte: an error can
// only cut the stream, which Restore and VerifyBackup refuse. A client that reads slowly has the store
// keep replaced pages until the end: the client writes to its disk first.
func ExampleDB_Backup_overHTTP() {
	db, err := kv.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := db.Put([]byte("k"), []byte("v")); err != nil {
		log.Fatal(err)
	}

	handler := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		if _, err := db.Backup(r.Context(), w, kv.BackupOptions{}); err != nil {
			log.Print(err)
			panic(http.ErrAbortHandler) // cuts the stream
		}
	}
	server := httptest.NewServer(http.HandlerFunc(handler))
	defer server.Close()

	// The other side: instead of VerifyBackup, kv.Restore makes a store of it.
	response, err := http.Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	_, err = kv.VerifyBackup(context.Background(), response.Body)
	fmt.Println("whole:", err == nil)
	// Output: whole: true
}

// The end of a service: first the server, whose handlers use the store, then the store. Close returns
// ErrTxnsOpen while a transaction is open; Shutdown waits for it.
func ExampleDB_Shutdown_service() {
	db, err := kv.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	handler := func(w http.ResponseWriter, r *http.Request) {
		err := db.UpdateContext(r.Context(), func(tx *kv.Tx) error {
			return tx.Put([]byte("k"), []byte("v"))
		})
		if err != nil {
			http.Error(w, "try again", http.StatusServiceUnavailable)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(handler)}
	go server.Serve(listener)
	response, err := http.Get("http://" + listener.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()

	// In a program this line is <-ctx.Done(), with ctx from signal.NotifyContext.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = errors.Join(server.Shutdown(ctx), db.Shutdown(ctx))
	fmt.Println(response.StatusCode, err)
	// Output: 200 <nil>
}
