package btree

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLookaheadIsThroughWithThePageInTime: whatever the sizes of pages and rows, no row asks for more than a piece, and all of the
// page has been asked for when the rows before it are passed, unless they are so few that a piece with each is not enough.
func TestLookaheadIsThroughWithThePageInTime(t *testing.T) {
	for _, size := range []int{4096, 8192, 65536} {
		for _, rows := range []int{1, 2, 7, 8, 9, 31, 32, 100, 500} {
			t.Run(fmt.Sprintf("%d bytes, %d rows", size, rows), func(t *testing.T) {
				page := make([]byte, size)
				a := look(page, rows)
				require.Len(t, a.rest, size-nearBytes(0))
				for range rows {
					before := len(a.rest)
					a.passed()
					require.LessOrEqual(t, before-len(a.rest), lookPiece)
				}
				require.Len(t, a.rest, max(0, size-nearBytes(0)-rows*lookPiece))
			})
		}
	}
}
