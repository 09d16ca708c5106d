package fuzz

import (
	"bytes"
	"encoding/binary"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/ebbkv/ebb/pager"
)

// What mendFiles makes good again.
const (
	mendPages    = 1 << iota // checksums of pages and extents
	mendRecords              // of log records
	mendSegments             // of segment headers and notes
)

// Places in the files that an attacker knows from docs/format.md.
const (
	metaStoreID   = 56
	extentSizeAt  = 24
	noteBlock     = 4096
	recordsAt     = 8192
	recordHead    = 48
	recordLength  = 40
	segmentSumAt  = 64
	noteSumAt     = 16
	segmentSector = 512
)

// mendFiles computes checksums anew, as an attacker does that knows the format.
func mendFiles(files map[string][]byte, what byte) {
	main := files[mainFile()]
	for name, content := range files {
		switch {
		case name == mainFile():
			if what&mendPages != 0 && len(main) >= specimenPage {
				mendMain(main)
			}
		case strings.Contains(name, "-wal-"):
			if what&mendSegments != 0 && len(content) >= noteBlock+noteSumAt+8 {
				binary.LittleEndian.PutUint64(content[segmentSumAt:], xxhash.Sum64(content[:segmentSumAt]))
			}
			if note := content[min(noteBlock, len(content)):]; what&mendSegments != 0 &&
				len(note) > noteSumAt+8 &&
				!bytes.Equal(note[:noteSumAt], make([]byte, noteSumAt)) {
				binary.LittleEndian.PutUint64(note[noteSumAt:], xxhash.Sum64(note[:noteSumAt]))
			}
			if what&mendRecords != 0 {
				mendLog(content)
			}
		}
	}
}

// mendMain seals every page with the store's salt; an overflow extent as a whole.
func mendMain(main []byte) {
	salt := pager.Salt([16]byte(main[metaStoreID:]))
	for at := 0; at+specimenPage <= len(main); {
		p := main[at : at+specimenPage]
		n := 1
		if pager.ReadHeader(p).Kind == pager.KindOverflow {
			size := binary.LittleEndian.Uint64(p[extentSizeAt:])
			if size < uint64(len(main)) {
				n = int(pager.ExtentPages(int(size), specimenPage))
			}
		}
		end := min(at+n*specimenPage, len(main)/specimenPage*specimenPage)
		if !bytes.Equal(p, make([]byte, specimenPage)) {
			pager.SetChecksum(main[at:end], salt)
		}
		at = end
	}
}

// mendLog seals every record from the first one on, as far as lengths lead from one to the next.
func mendLog(b []byte) {
	for at := recordsAt; at+recordHead <= len(b); {
		if left := segmentSector - at%segmentSector; left < recordHead {
			at += left
			continue
		}
		if bytes.Equal(b[at:at+recordHead], make([]byte, recordHead)) {
			at += segmentSector - at%segmentSector
			continue
		}
		n := recordHead + int(binary.LittleEndian.Uint32(b[at+recordLength:]))
		if n < 0 || n > len(b)-at {
			return
		}
		binary.LittleEndian.PutUint64(b[at:], xxhash.Sum64(b[at+8:at+n]))
		at += n
	}
}
