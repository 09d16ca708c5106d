package main

// pageMutants are mistakes in pages and trees.
var pageMutants = []mutant{
	{"sync", "pages_are_not_synced_before_the_meta_page", "pager/writeback.go",
		`	return w.sync("the pages", func() error { return w.file.Sync() })`,
		`	return w.unsynced()`},
	{"sync", "the_meta_page_is_not_synced", "pager/writeback.go",
		`func() error { return f.file.SyncData() }); err != nil {`,
		`func() error { return nil }); err != nil {`},
	{"sync", "growth_is_synced_as_data_only", "pager/writeback.go",
		`	return w.sync("the pages", func() error { return w.file.Sync() })`,
		`	return w.sync("the pages", func() error { return w.file.SyncData() })`},
	{"sync", "error_of_writing_pages_is_ignored", "pager/writeback.go",
		`		if err := w.writePages(part, c.images, buf, yield); err != nil {
			return err
		}`, `		_ = w.writePages(part, c.images, buf, yield)`},
	{"sync", "error_of_a_sync_of_the_main_file_is_ignored", "pager/sync.go",
		`	if err := syncFile(); err != nil {`, `	if err := syncFile(); err != nil && false {`},
	{"sync", "a_failed_sync_of_the_main_file_is_tried_again", "pager/sync.go",
		`	if f.fileSync.first != nil {
		return f.fileSync.first
	}
	if err`, `	f.fileSync.first = nil
	if err`},
	{"sync", "error_of_the_sync_of_the_meta_page_is_ignored", "pager/writeback.go",
		`func() error { return f.file.SyncData() }); err != nil {
		return err
	}`, `func() error { return f.file.SyncData() }); err != nil {
		_ = err
	}`},
	{"sync", "growth_for_large_values_is_synced_as_data_only", "pager/sync.go",
		`		if f.fileSync.grown.Swap(false) {`,
		`		if f.fileSync.grown.Swap(false) && false {`},
	{"order", "a_meta_page_is_written_after_a_failed_sync", "pager/writeback.go",
		`	if err := f.unsynced(); err != nil {`,
		`	if err := f.unsynced(); err != nil && false {`},
	{"check", "the_log_may_name_pages_in_use", "pager/alloc.go",
		`		if !pool.of(g).has(i) {`,
		`		if !pool.of(g).has(i) && false {`},
	{"order", "pages_that_replay_allocates_are_punched", "pager/holes.go",
		`(g.again == nil || !g.again.has(i))`, `true`},
	{"order", "pages_behind_the_durable_state_are_punched", "pager/holes.go",
		`if end = min(end, s.end); h`, `if end = s.end; h`},
	{"room", "the_reserve_is_punched", "pager/holes.go", `h.reservePages(0) + minHolePages/4`, `0`},
	{"room", "close_punches_the_reserve", "pager/holes.go", `max(least/16, 1), h.reservePages(0)`,
		`max(least/16, 1), 0`},
	{"room", "a_full_disk_is_asked_for_each_page", "pager/holes.go", `		h.Growth.full = true`, ``},
	{"room", "space_that_comes_back_is_not_found", "pager/reservation.go",
		`		a.Growth.full = false`, `		return err`},
	{"room", "a_punch_that_failed_leaves_room", "pager/holes.go",
		`if errors.Is(err, errors.ErrUnsupported) {`,
		`if err != nil || errors.Is(err, errors.ErrUnsupported) {`},
	{"room", "the_tail_has_room_where_it_had_holes", "pager/holes.go",
		`		h.Growth.size = int64(low+room) * size`, ``},
	{"room", "the_tail_is_cut_without_room_behind_it", "pager/holes.go",
		`	if h.file.Reserve(int64(low)*size, int64(room)*size) != nil {`, `	if false {`},
	{"room", "growth_into_the_file_has_room", "pager/preallocate.go",
		`	if from < length && from < size {`, `	if false {`},
	{"room", "free_pages_have_room_at_open", "pager/freemap.go", `m.Pages, m.Pages, !a.o.ReadOnly`,
		`m.Pages, m.Pages, false`},
	{"room", "holes_with_room_are_not_found", "pager/holes.go",
		`	for no := h.noRoom / s.perGroup;`, `	for no := uint64(len(s.groups));`},
	{"order", "pages_are_allocated_while_they_are_punched", "pager/holes.go",
		`			s.markAllocated(pool, g, i)
		}
		most`, `		}
		most`},
	{"sync", "error_of_cutting_the_file_is_ignored", "pager/truncate.go",
		`		return false, fmt.Errorf("cut %s: %w", g.name, err)`,
		`		return fmt.Sprint(err) == "", nil`},
	{"order", "reusable_pages_are_free_pages", "pager/freespace.go", `		if g.isReusable(i) {`,
		`		if false {`},
	{"order", "reusable_pages_are_spilled", "txn/writer.go", ` && !pg.Alloc.IsReusable(r.id) {`, ` {`},
	{"order", "reusable_pages_of_the_free_lists_are_allocated_for_early_writes",
		"pager/pagepool.go", `	if inMemory || s.nReusable == 0 {`, `	if true {`},
	{"order", "large_values_use_reusable_pages", "pager/alloc.go",
		`return a.allocate(how, false)`, `return a.allocate(how, true)`},
	{"order", "loads_use_reusable_pages", "pager/bulkwriter.go", `p.Alloc.allocate(how, false)`,
		`p.Alloc.allocate(how, true)`},
	{"order", "a_load_that_fails_gives_pages_back_that_are_being_written", "txn/bulk.go",
		`	defer func() { _ = l.s.dataError(l.pages.Discard()) }()
`, ``},
	{"order", "a_load_that_ends_leaves_pages_to_be_written", "pager/bulkwriter.go",
		`	return <-l.end`, `	return nil`},
	{"sync", "error_of_writing_a_load_is_ignored", "pager/bulkwriter.go", `	end <- first`,
		`	end <- error(nil)`},
	{"order", "pages_are_free_when_their_checkpoint_begins", "txn/reclaim.go",
		`	case f.afterCheckpoint <= q.durable:`, `	case true:`},
	{"order", "pages_are_promised_before_their_checkpoint_begins", "txn/reclaim.go",
		`	if f.afterCheckpoint > q.pg.Pool.Captured() {`,
		`	if f.afterCheckpoint > q.pg.Pool.Captured()+1 {`},
	{"order", "promised_pages_stay_early", "txn/reclaim.go", `	q.pg.Alloc.AcceptReusable()
`, ``},
	{"room", "a_transaction_gets_all_promised_pages", "pager/pagepool.go",
		` && s.reusableInUse() < how.MostReusable`, ``},
	{"room", "early_pages_leave_no_room_for_the_next_open", "txn/reclaim.go",
		`	return min(q.replacedPages, `, `	return min(q.replacedPages+1<<20, `},
	{"room", "what_is_freed_of_the_durable_state_is_room", "txn/reclaim.go",
		`	if f.epoch > q.durable && f.epoch`, `	if f.epoch`},
	{"room", "what_an_earlier_checkpoint_had_is_room", "txn/reclaim.go", `	q.replacedPages = 0
`, ``},
	{"room", "nothing_is_promised", "txn/reclaim.go",
		`	if f.afterCheckpoint > q.pg.Pool.Captured() {`,
		`	if f.afterCheckpoint > q.durable {`},
	{"room", "garbage_stays_in_memory", "pager/writeback.go", `	if observer != nil && len(c.Deltas) == 0 {
		w.dropFromPageCache(c.deadRanges)`, `	if observer != nil && len(c.Deltas) == 0 {
		_ = c`},
	{"room", "batches_look_at_what_they_change", "txn/pages.go",
		`	if h.directRead && h.View.Cold(ref) {`, `	if false {`},
	{"room", "deletions_look_at_what_they_change", "txn/pages.go",
		`	return h.directRead && !h.Owned(ref) && h.View.Cold(ref)`, `	return false`},
	{"room", "what_was_read_in_vain_is_read_again", "pager/read.go", `		r.verified.add(ref.Pgid)
	} else if epochOf(b) != ref.Epoch {
		return r.otherEpoch(ref, b)
	}
	r.accessed.add(ref.Pgid)
	r.recheckGeneration(ref.Pgid, generation)
	return nil
}`, `		r.verified.add(ref.Pgid)
	} else if epochOf(b) != ref.Epoch {
		return r.otherEpoch(ref, b)
	}
	_ = generation
	return nil
}`},
	{
		"room", "no_room_is_kept_for_what_a_replay_copies", "pager/reservation.go",
		`	a.reserved.replay += n`, `	a.reserved.replay += 0 * n`,
	},
	{"room", "holes_are_left_alone_on_a_full_disk", "pager/pagepool.go", `	if s.avail.n == 0 {
		return 0, false, nil`, `	if true {
		return 0, false, nil`},
	{"check", "a_page_that_was_proved_beside_a_failed_sync_is_trusted", "pager/writeback.go",
		`	if f.verifyGeneration.Load() != generation {`, `	if false {`},
	{"check", "a_group_of_the_free_map_that_changes_last_is_not_written", "pager/freemap.go",
		`			again = true // The old`, `			// The old`},
	{"check", "what_is_read_to_be_changed_is_not_proved", "pager/read.go",
		`		if err := r.verify(ref, b); err != nil {
			return err
		}
		r.verified.add(ref.Pgid)
	} else if epochOf(b) != ref.Epoch {
		return r.otherEpoch(ref, b)
	}
	r.accessed.add(ref.Pgid)
	r.recheckGeneration(ref.Pgid, generation)
	return nil`, `		r.verified.add(ref.Pgid)
	} else if epochOf(b) != ref.Epoch {
		return r.otherEpoch(ref, b)
	}
	r.accessed.add(ref.Pgid)
	r.recheckGeneration(ref.Pgid, verifyGeneration)
	return nil`},
	{"check", "a_page_that_was_met_is_of_any_epoch", "pager/read.go",
		`		if err == nil && epochOf(b) != ref.Epoch {
			return nil, r.otherEpoch`, `		if err == nil && epochOf(b) != ref.Epoch && false {
			return nil, r.otherEpoch`},
	{"check", "an_extent_is_of_any_epoch", "pager/overflow.go", `	if epochOf(b) != ref.Epoch {`,
		`	if epochOf(b) != ref.Epoch && false {`},
	{"check", "a_page_may_be_freed_twice", "pager/alloc.go", `		if err == nil && !g.used.has(at) {
			err = a.corrupt(`, `		if err == nil && !g.used.has(at) && false {
			err = a.corrupt(`},
	{"check", "distrust_leaves_what_was_met", "pager/writeback.go", `	f.accessed.clear()
`, ``},
	{"room", "short_runs_are_let_go", "pager/madvise.go", `end >= first+lo+minDeadRange`, `end > first+lo`},
	{"room", "promised_pages_do_not_count", "pager/pagepool.go",
		` + min(s.inRuns(&s.reusable, n), more)`, ``},
	{"order", "pages_of_the_durable_state_are_cut_off_for_others", "pager/truncate.go",
		`int64(max(a.space.end, a.lastMeta.Pages)+`, `int64(a.space.end+`},
	{"sync", "a_new_store_is_not_synced", "pager/pager.go", `	return f.Sync()
}`, `	return nil
}`},
	{"order", "room_that_is_not_there_yet_counts", "pager/preallocate.go", `	g.grownTo = grownTo
`, `	g.grownTo, g.size = grownTo, size
`},
	{"order", "the_file_is_cut_while_it_grows", "pager/truncate.go", `	a.Growth.EndPreallocation()
	size := int64(a.space.end)`, `	size := int64(a.space.end)`},
	{"order", "a_truncation_goes_on_into_pages_that_were_allocated", "pager/truncate.go",
		`	c.to = max(c.to, size)
`, ``},
	{"room", "room_in_the_way_of_a_truncation_is_not_reserved", "pager/truncate.go",
		`c.to > c.room && g.file.Reserve(c.room, c.to-c.room) == nil`, `c.to > c.room`},
	{"sync", "the_size_of_a_file_that_has_grown_is_not_synced", "pager/preallocate.go",
		`	g.fileSync.grown.Store(true)
`, ``},
	{"order", "the_live_meta_page_is_overwritten", "pager/writeback.go",
		`	m.Slot = 1 - f.lastMeta.Slot`, `	m.Slot = f.lastMeta.Slot`},
	{"check", "checksum_of_a_page_is_not_looked_at", "pager/read.go",
		`	if !ChecksumMatches(b, f.salt) {`, `	if !ChecksumMatches(b, f.salt) && false {`},
	{"check", "number_of_a_page_is_not_looked_at", "pager/read.go", `	case h.Pgid != ref.Pgid:`,
		`	case false && h.Pgid != ref.Pgid:`},
	{"check", "epoch_of_a_page_is_not_looked_at", "pager/read.go", `	case h.Epoch != ref.Epoch:`,
		`	case false && h.Epoch != ref.Epoch:`},
	{"check", "kind_of_an_extent_is_not_looked_at", "pager/overflow.go", `KindOverflow {
		return`, `KindOverflow && false {
		return`},
	{"check", "size_of_an_extent_is_not_looked_at", "pager/overflow.go",
		`	if n := extentSize(b); n != uint64(size) {`,
		`	if n := extentSize(b); n != uint64(size) && false {`},
	{"check", "a_reference_past_the_end_is_followed", "pager/mainfile.go",
		`	if end := f.end.Load(); uint64(ref.Pgid) < 2 || uint64(ref.Pgid) >= end || end-uint64(ref.Pgid) < n {`,
		`	if end := f.end.Load(); false {`},
	{"check", "slots_of_a_page_are_not_looked_at", "pager/read.go",
		`	if err := f.o.CheckPage(b, f.pageSize); err != nil {`,
		`	if err := f.o.CheckPage(b, f.pageSize); err != nil && false {`},
	{"check", "checksum_of_a_meta_page_is_not_looked_at", "pager/meta.go",
		`	if !ChecksumMatches(p, Salt(m.StoreID)) {`,
		`	if !ChecksumMatches(p, Salt(m.StoreID)) && false {`},
	{"check", "the_free_map_is_not_held_against_its_directory", "pager/freemap.go",
		`	if n != g.nUsed || `, `	if `},
	{"check", "a_file_that_was_cut_is_opened", "pager/pager.go",
		`	if int64(m.Pages)*int64(m.PageSize) > p.Alloc.Growth.length {`, `	if false {`},
	{"check", "depth_of_a_tree_is_not_bounded", "btree/check.go", ` || t.Depth > maxDepth {`, ` {`},
	{"check", "cells_may_share_bytes", "btree/validate.go", `		if c.seen[w]&mask != 0 {`,
		`		if c.seen[w]&mask != 0 && c.n < 0 {`},
	{"check", "order_of_keys_is_not_verified", "btree/validate.go", `bytes.Compare(prev, key) >= 0) {
			return c.bad("key %d`, `bytes.Compare(prev, key) > 0) {
			return c.bad("key %d`},
	{"check", "prefix_of_keys_is_not_verified", "btree/validate.go",
		`!hasPrefix(key, first, prefix) {`, `!hasPrefix(key, first, prefix) && c.n < 0 {`},
	{"check", "end_of_a_cell_is_not_verified", "btree/validate.go", `		if end > len(b) {`,
		`		if end > len(b)+8 {`},
	{"check", "iterator_forgets_its_error", "btree/cursor.go",
		`func (c *Cursor) Err() error { return c.err }`,
		`func (c *Cursor) Err() error { return nil }`},
}
