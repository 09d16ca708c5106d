package main

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

// TestLoadOfACSVLosesNothing: the dump of the copy is that of the original, whatever bytes keys and
// values have.
func TestLoadOfACSVLosesNothing(t *testing.T) {
	s := newTimedStore(t)
	_, text := dumped(t, s)
	for _, flags := range [][]string{{"--csv"}, {"--csv", "--hex"}, {"--csv", "--base64"}} {
		file := filepath.Join(t.TempDir(), "dump.csv")
		require.NoError(t, os.WriteFile(file, []byte(s.good("dump", flags...)), 0o600))
		c := newTimedStore(t)
		require.Equal(t, "7 rows loaded\n", c.good("load", file, "--csv"))
		require.Equal(t, text, c.good("dump", "--json"))
	}
}

// TestBytesThatCSVChanges: encoding/csv reads a carriage return before a newline as nothing.
func TestBytesThatCSVChanges(t *testing.T) {
	cells := []string{
		"a", "a\r\nb", "\r", "\n", "a,b", `"`, `a"b`, " a ", "\x00", "\xff", "base64:eA==", "hex:61",
		"é", "=1+1", "#",
	}
	s := storePath(t)
	db, err := kv.Open(s, nil)
	require.NoError(t, err)
	for _, key := range cells {
		for _, value := range append(cells, "") {
			require.NoError(t, db.Put([]byte(key+"/"+value), []byte(value)))
		}
		require.NoError(t, db.Put([]byte(key), []byte(key)))
	}
	require.NoError(t, db.Close())
	dump := good(t, "dump", s, "--csv")
	records, err := csv.NewReader(strings.NewReader(dump)).ReadAll()
	require.NoError(t, err)
	require.Len(t, records, 1+len(cells)*(len(cells)+2))
	require.Equal(t, csvColumns, records[0])
	a := ebbIn(t, strings.NewReader(dump), "load", s+"-copy", "--csv")
	require.Equal(t, exitOK, a.code, a.stderr)
	require.Equal(t, good(t, "dump", s, "--json"), good(t, "dump", s+"-copy", "--json"))
	require.Equal(t, exitError, ebb(t, "dump", s, "--csv", "--json").code)
}

func TestLoadRefusesWhatIsNoCSV(t *testing.T) {
	head := strings.Join(csvColumns, ",") + "\n"
	for _, text := range []string{
		"a,b\n", "family,key,value,expiry,times\n", "key,value,key\n", "key,expiry\n",
		head + "f,k\n", head + "f,hex:x,v,,\n", head + "f,base64:*,v,,\n",
		head + ",,v,,\n", head + "f,k,v,soon,\n", head + "f,,no json,,\n", head + "f,k,\"v,,\n",
	} {
		a := ebbIn(t, strings.NewReader(text), "load", storePath(t), "--csv")
		require.Equal(t, exitError, a.code, text)
	}
	s := storePath(t)
	a := ebbIn(t, strings.NewReader(head), "load", s, "--csv")
	require.Equal(t, exitOK, a.code, a.stderr)
}

// TestLoadOfACSVOfAnotherOrigin: the first record names the columns, in any order, and a row that
// names no family goes to --family.
func TestLoadOfACSVOfAnotherOrigin(t *testing.T) {
	for _, test := range []struct{ text, dump string }{
		{"key,value\nk,\"a,b\"\n", "f,k,\"a,b\",,\n"},
		{"\ufeffvalue,key\r\nv,k\r\n", "f,k,v,,\n"},
		{"value,family,key\nv,,k\nw,g,k\n", "f,k,v,,\ng,k,w,,\n"},
		{"key,expiry,value\nk,2130-01-31T12:00:00Z,v\nl,,w\n", "f,k,v,2130-01-31T12:00:00Z,\nf,l,w,,\n"},
	} {
		s := storePath(t)
		a := ebbIn(t, strings.NewReader(test.text), "load", s, "--csv", "--family", "f")
		require.Equal(t, exitOK, a.code, a.stderr)
		require.Equal(t, strings.Join(csvColumns, ",")+"\n"+test.dump, good(t, "dump", s, "--csv"))
	}
	s := storePath(t)
	a := ebbIn(t, strings.NewReader("key,value\na,\"1\n2\"\nb\n"), "load", s, "--csv")
	require.Contains(t, a.stderr, "load: line 4: ")
	require.Contains(t, a.stderr, "the first record is as key,value")
	a = ebbIn(t, strings.NewReader("id,name\n1,ann\n"), "load", s, "--csv")
	require.Contains(t, a.stderr, "load: line 1: ")
	a = ebbIn(t, strings.NewReader("key,value,expiry\na,\"b\nc\",\nb,d,soon\n"), "load", s, "--csv")
	require.Contains(t, a.stderr, "load: line 4: ")
}
