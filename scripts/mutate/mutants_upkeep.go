package main

// upkeepMutants are mistakes in backup, compact and salvage. Each names the test that catches it.
var upkeepMutants = []mutant{
	{
		"room", "a_fill_pass_keeps_no_room_for_a_replay", "txn/compactfill.go",
		`ReserveReplay(uint64(sum.Saved), pager.ForPut)`, `ReserveReplay(0*uint64(sum.Saved), pager.ForPut)`,
	},
	{
		"order", "a_fill_pass_joins_before_there_is_a_log", "txn/compactfill.go",
		`if !f.s.started {`, `if false {`,
	},
	{
		"order", "a_filled_tree_keeps_its_old_root", "txn/compactfill.go",
		`if t.Root != before {`, `if t.Root != before && t.Depth > 9 {`,
	},
	{
		"order", "a_step_of_filling_skips_leaves", "btree/fill.go",
		`			f.From = nil`, `			f.Next = nil`,
	},
	{
		"check", "joined_pages_lose_their_separator", "btree/fill.go",
		`fresh[0].sep = first.sep`, `fresh[0].sep = first.sep[:0]`,
	},
	{
		"check", "a_fill_pass_hides_a_wrong_count", "btree/fill.go",
		`if rows != 0 {`, `if false && rows != 0 {`,
	},
	{
		"order", "a_compaction_leaves_its_ceiling", "txn/compactonline.go",
		`	defer s.pg.Alloc.LiftCeiling()
`, ``,
	},
	{
		"order", "checkpoints_of_a_compaction_punch", "txn/checkpoint.go",
		`err == nil && len(k.compacting) == 0 {`, `err == nil {`,
	},
	{
		"check", "a_restore_believes_the_page_count", "txn/restore.go",
		`	m.Pages = min(m.Pages, end)`, `	m.Pages = min(m.Pages, m.Pages+end)`,
	},
	{
		"order", "a_compaction_cannot_be_cancelled", "txn/compactonline.go",
		`	for !r.done {
		if err := contextErr(c.ctx); err != nil {`, `	for !r.done {
		if err := contextErr(nil); err != nil {`,
	},
	{
		"ack", "a_backup_keeps_no_pages", "txn/backup.go",
		`r.v, r.slot = r.s.head, r.s.backups.pin(r.s.head, r.s.now())`, `r.v = r.s.head`,
	},
	{
		"check", "an_increment_on_the_backup_of_a_twin", "txn/backup.go",
		`		if id == since.ID {`, `		if id.Epoch == since.ID.Epoch {`,
	},
	{
		"check", "a_backup_does_not_see_lost_writes", "txn/backup.go",
		`if v.Sum() != r.sum {`, `if false {`,
	},
	{
		"check", "increments_in_any_order", "txn/restore.go",
		`case before != nil && d.Base != before.ID:`, `case before != nil && d.Base != before.ID && false:`,
	},
	{
		"check", "a_restore_beside_another_log", "txn/restore.go",
		`	if len(found) > 0 {`, `	if len(found) > 1000 {`,
	},
	{
		"ack", "salvage_takes_an_unfinished_checkpoint", "internal/salvage/table.go",
		`certain = r.report.Log.Why == "" &&`, `certain = false &&`,
	},
	{
		"sync", "a_salvaged_store_has_no_durable_name", "internal/salvage/salvage.go",
		`return r.o.FS.SyncDir(dirOf(to))`, `return nil`,
	},
	{
		"check", "salvage_takes_pages_that_are_not_in_use", "internal/salvage/pieces.go",
		`case r.used.Has(h.Pgid):`, `case r.used.Has(h.Pgid) || true:`,
	},
}

// killers name the tests for mutants whose package has many others.
var killers = map[string]suite{
	"a_fill_pass_keeps_no_room_for_a_replay":  {"txn", "^TestFillLeavesSpaceForAReplay$"},
	"a_fill_pass_joins_before_there_is_a_log": {"txn", "^TestFillSavesPages$"},
	"a_filled_tree_keeps_its_old_root":        {"txn", "^TestFillSavesPages$"},
	"a_step_of_filling_skips_leaves":          {"btree", "^TestFill"},
	"joined_pages_lose_their_separator":       {"btree", "^TestFillLeavesNoNeighboursThatFit$"},
	"a_fill_pass_hides_a_wrong_count":         {"btree", "^TestFillOfDamage$"},
	"a_compaction_leaves_its_ceiling":         {"txn", "^TestCompactIsCancelledBetweenSteps$"},
	"checkpoints_of_a_compaction_punch":       {"txn", "^TestCompactPunchesOnlyAtItsEnd$"},
	"a_restore_believes_the_page_count":       {"txn", "^TestMemoryOfRestoreIsBoundByTheStream$"},
	"a_compaction_cannot_be_cancelled":        {"txn", "^TestCompactIsCancelledBetweenSteps$"},
	"a_backup_keeps_no_pages":                 {"txn", "^TestBackupBesideCommits$"},
	"an_increment_on_the_backup_of_a_twin":    {"txn", "^TestIncrementsOfAnotherHistoryAreRefused$"},
	"a_backup_does_not_see_lost_writes":       {"txn", "^TestBackupSeesALostWrite$"},
	"increments_in_any_order":                 {"txn", "^TestIncrementsOfAnotherHistoryAreRefused$"},
	"a_restore_beside_another_log":            {"txn", "^TestRestoreRefusesWhatIsThere$"},
	"salvage_takes_an_unfinished_checkpoint":  {"internal/salvage", "^TestMetaPageDamaged"},
	"a_salvaged_store_has_no_durable_name":    {"internal/salvage", "^TestNewStoreAfterACrash$"},
	"salvage_takes_pages_that_are_not_in_use": {"internal/salvage", "^TestRowsOfAFailedLoadAreNotSaved$"},
}
