package cf_test

import (
	"testing"

	"github.com/ebbkv/ebb/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }
