package wal

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/bound"
)

// TestRecordThatNoVersionWritesIsNone, although its checksum is right.
func TestRecordThatNoVersionWritesIsNone(t *testing.T) {
	const salt, lsn = 7, LSN(40960)
	for _, test := range []struct {
		name   string
		change func(b []byte)
		want   string
	}{
		{"as_it_should_be", func([]byte) {}, ""},
		{"reserved_bytes", func(b []byte) { b[recReserved+1] = 1 }, "reserved"},
		{"type_0", func(b []byte) { b[recType] = 0 }, "type 0"},
		{"type_of_the_future", func(b []byte) { b[recType] = 4 }, "type 4"},
		{"unknown_flag", func(b []byte) { b[recFlags] |= 4 }, "flags 7"},
		{"seal_with_payload", func(b []byte) { b[recType], b[recFlags] = byte(typeSeal), 0 },
			"7 payload bytes"},
		{"void_with_payload", func(b []byte) {
			b[recType], b[recFlags] = byte(typeCompensation), 0
		}, "7 payload bytes"},
		{"durable_before_it_is_written", func(b []byte) {
			binary.LittleEndian.PutUint64(b[recSynced:], uint64(lsn)+1)
		}, "is durable"},
		{"before_itself", func(b []byte) {
			binary.LittleEndian.PutUint64(b[recPrev:], uint64(lsn))
		}, "is before it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := appendRecord(
				nil,
				salt,
				record{lsn: lsn, kind: typeData, flags: partFirst | partLast, payload: []byte("payload")},
			)
			test.change(b)
			sealRecord(b, LSN(binary.LittleEndian.Uint64(b[recSynced:])))
			r, err := decodeRecord(b, salt, lsn)
			if test.want != "" {
				require.ErrorContains(t, err, test.want)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "payload", string(r.payload))
			for n := range len(b) {
				_, err := decodeRecord(b[:n], salt, lsn)
				require.Error(t, err, "%d bytes", n)
			}
		})
	}
}

// FuzzRecord checks that what decodes encodes to the same bytes.
func FuzzRecord(f *testing.F) {
	l, file := smallLog(f, 512)
	salt := l.appender.live[0].salt
	f.Add(file[firstRecord:firstRecord+512], salt, uint64(l.start))
	f.Fuzz(func(t *testing.T, b []byte, salt, lsn uint64) {
		defer bound.Hold(t, uint64(1<<20+8*len(b)))()
		for _, fix := range []bool{false, true} {
			if fix && len(b) >= recHeader {
				// Make the cheap checks pass, as an attacker would.
				b = bytes.Clone(b)
				r := record{
					lsn:     LSN(lsn),
					kind:    recordType(b[recType]),
					flags:   partFlags(b[recFlags]),
					payload: b[recHeader:],
				}
				b = appendRecord(nil, salt, r)
				sealRecord(b, 0)
			}
			r, err := decodeRecord(b, salt, LSN(lsn))
			if err != nil {
				continue
			}
			again := appendRecord(nil, salt, r)
			sealRecord(again, r.synced)
			require.Equal(t, b[:r.size()], again)
		}
	})
}

// TestRecordsOfThePreviousUseAreIgnored: the same segment with another salt, as when a number is used
// again and the disk brings back old blocks. Place and checksum of the records are right, the salt
// alone tells.
func TestRecordsOfThePreviousUseAreIgnored(t *testing.T) {
	l, file := smallLog(t, 512)
	h := l.appender.live[0].segmentHeader
	h.salt++
	clear(file[:hintAt])
	putSegmentHeader(file, h)
	got, _, err := l.reread(file, 0)
	require.NoError(t, err)
	require.Empty(t, got)
}

// TestARecordElsewhereIsNone: salt and checksum of a record that went to the wrong place are right,
// its LSN is not.
func TestARecordElsewhereIsNone(t *testing.T) {
	l, file := smallLog(t, 512)
	salt := l.appender.live[0].salt
	_, err := decodeRecord(file[firstRecord:], salt, l.start)
	require.NoError(t, err)
	for _, lsn := range []LSN{l.start - 512, l.start + 512, l.start + smallSegment} {
		_, err = decodeRecord(file[firstRecord:], salt, lsn)
		require.ErrorContains(t, err, "expected", "LSN %d", lsn)
	}
}
