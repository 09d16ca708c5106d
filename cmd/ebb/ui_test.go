package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

// TestUIServesUntilItIsInterrupted, beside a program that has the store open to write.
func TestUIServesUntilItIsInterrupted(t *testing.T) {
	s := filledStore(t)
	db, err := kv.Open(s, nil)
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("new"), []byte("in the log")))
	ctx, stop := context.WithCancel(t.Context())
	out, stdout := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"ui", s, "--json"}, strings.NewReader(""), stdout, io.Discard)
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	url := object(t, line)["url"].(string)
	require.Contains(t, url, "http://127.0.0.1:")
	go func() { _, _ = io.Copy(io.Discard, out) }()

	base, token, _ := strings.Cut(url, "#token=")
	client := http.Client{}
	ask := func(url string) (int, []byte) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := client.Do(r)
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode, body
	}
	code, body := ask(url)
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, string(body), "app.js")
	_, body = ask(base + "api/rows?family=default&prefix=6e6577")
	var rows struct {
		Rows []struct {
			Value []byte `json:"value"`
		} `json:"rows"`
	}
	require.NoError(t, json.Unmarshal(body, &rows))
	require.Len(t, rows.Rows, 1)
	require.Equal(t, "in the log", string(rows.Rows[0].Value))
	client.CloseIdleConnections()
	stop()
	require.Equal(t, exitOK, <-ended)
	require.NoError(t, db.Close())
	require.NoError(t, stdout.Close())
}

func TestUIRefusesWhatItCannotServe(t *testing.T) {
	s := storePath(t)
	a := ebb(t, "ui", s)
	require.Equal(t, exitError, a.code)
	require.Contains(t, a.stderr, "no such file")
	writeFile(t, s, strings.Repeat("no store", 5000))
	a = ebb(t, "ui", s)
	require.Equal(t, exitError, a.code)
	require.Contains(t, a.stderr, "not an Ebb store")
	a = ebb(t, "ui", filledStore(t), "--addr", "0.0.0.0:80")
	require.Equal(t, exitError, a.code)
	require.Contains(t, a.stderr, "127.0.0.1")
}
