package main

// expiryMutants are mistakes in the three trees of expiry.
var expiryMutants = []mutant{
	{"ttl", "a_key_lives_a_millisecond_too_long", "ttl/expiry.go", `return now >= expiry }`,
		`return now > expiry }`},
	{"ttl", "an_expiry_now_is_taken", "ttl/expiry.go", `	if ms <= now {`, `	if ms < now {`},
	{"ttl", "a_reading_from_before_a_jump_takes_it_back", "kv/clock.go",
		`	case mono < c.jumpedAt.Load():`, `	case false:`},
	{"ttl", "who_meets_a_jump_late_tells_of_it_again", "kv/clock.go",
		`	if offset-last <= c.maxStep {`, `	if false {`},
	{"ttl", "a_jump_is_taken_for_the_time_before_it_is_known", "kv/clock.go", `	c.jumped.Store(true)
	c.jumpedAt.Store(mono)
	c.offset.Store(offset)`, `	c.jumpedAt.Store(mono)
	c.offset.Store(offset)
	c.jumped.Store(true)`},
	{"ttl", "a_purge_goes_by_a_time_that_was_taken_back", "kv/purge.go", `	p.now = p.db.clock.clamp(p.now)
`, ``},
	{"ttl", "a_one_shot_read_evicts_less_than_a_batch", "kv/evict.go", `!db.queue.Holds(batchKeys)`,
		`db.queue.Len() == 0`},
	{"ttl", "a_read_does_not_note_what_it_hides", "kv/clock.go", `	c.observeExpired(expiry)
	return true`, `	return true`},
	{"ttl", "close_stores_the_mark_of_the_last_commit", "txn/checkpoint.go",
		`	c.meta.ClockMark, _ = k.markAtClose()
`, ``},
	{"ttl", "a_session_of_reads_stores_no_mark", "txn/close.go",
		`		errs = append(errs, s.checkpointer.storeMark())
`, ``},
	{"ttl", "every_session_of_reads_stores_its_mark", "txn/closingmark.go", `	if !needed || mark`,
		`	if _ = needed; mark`},
	{"ttl", "a_fence_loses_the_mark_of_a_close", "txn/recover.go",
		`	mark, backups := newest.ClockMark`, `	mark, backups := m.ClockMark`},
	{"ttl", "a_step_back_that_readers_followed_is_not_stored", "kv/clock.go",
		` || mark < stored && met > 0`, ``},
	{"ttl", "segments_that_come_back_take_the_mark_back", "txn/recover.go",
		`		if mark, ok := markBehind(m, last, read.last.seq); ok {`,
		`		if mark, ok := markBehind(m, last, read.last.seq); ok && false {`},
	{"ttl", "an_eviction_goes_by_a_time_that_was_taken_back", "kv/evict.go",
		`	tx.nowMs, tx.timed = db.clock.clamp(now), true`, `	tx.nowMs, tx.timed = now, true`},
	{"ttl", "notes_under_two_names_are_looked_up_by_the_first", "kv/evict.go",
		` && notes[n].Family == notes[0].Family {`, ` {`},
	{"ttl", "put_leaves_out_the_key_index", "ttl/rows.go",
		`	if _, err := r.Tx.Put(r.Family.KeyIndex(), key, due[:expirySize], 0); err != nil {
		return err
	}`, ``},
	{"ttl", "put_leaves_out_the_expiry_index", "ttl/rows.go",
		`	_, err := r.Tx.Put(r.Family.ExpiryIndex(), due, nil, 0)
	return err`, `	return nil`},
	{"ttl", "the_old_expiry_row_stays", "ttl/rows.go", `	if old != 0 {`, `	if old != 0 && false {`},
	{"ttl", "a_permanent_key_stays_in_the_key_index", "ttl/rows.go",
		`		_, err := r.Tx.Delete(r.Family.KeyIndex(), key)
		return err`, `		return nil`},
	{"ttl", "delete_leaves_the_indexes", "ttl/rows.go", `	return r.reindex(key, was.Tag, 0)
}`, `	_ = was
	return nil
}`},
	{"ttl", "clear_leaves_the_indexes", "ttl/rows.go",
		`	if err := r.Tx.Clear(r.Family.Data()); err != nil {
		return err
	}
	return r.clearIndexes()`, `	return r.Tx.Clear(r.Family.Data())`},
	{"ttl", "delete_of_a_range_leaves_expiry_rows", "ttl/range.go",
		`	if err := r.removeIndexRows(lo, hi); err != nil {
		return err
	}`, ``},
	{"ttl", "delete_of_a_range_leaves_the_key_index", "ttl/range.go",
		`	for _, id := range [...]txn.TreeID{f.KeyIndex(), f.Data()} {
		if _, err := r.Tx.DeleteRange(id, lo, hi)`, `	for _, id := range [...]txn.TreeID{f.Data()} {
		if _, err := r.Tx.DeleteRange(id, lo, hi)`},
	{"ttl", "purge_leaves_the_expiry_rows", "ttl/purge.go",
		`	if _, err := r.Tx.DeleteRange(r.Family.ExpiryIndex(), nil, next); err != nil {
		return PurgeStats{}, more, err
	}`, ``},
	{"ttl", "purge_leaves_the_data", "ttl/purge.go",
		`			rows = append(rows, Change{Key: key.Key, Delete: true})`,
		`			rows = append(rows, Change{Key: key.Key})`},
	{"ttl", "purge_believes_the_expiry_index_alone", "ttl/purge.go",
		`e.keys = append(e.keys, Change{Key: d.key(i), Value: d.expiry(i), Delete: true})`,
		`e.keys = append(e.keys, Change{Key: d.key(i), Delete: true})`},
	{"ttl", "batch_leaves_the_old_expiry_row", "ttl/indexbuffer.go", `		if old != 0 {`,
		`		if old != 0 && expiry == 0 {`},
	{"ttl", "batch_leaves_the_key_index", "ttl/indexbuffer.go",
		`			e.keys = append(e.keys, Change{Key: key, Delete: true})
`, ``},
	{"ttl", "rows_after_held_ones_count_as_if_none_expired", "ttl/apply.go",
		`r.HasExpiries() || e.Len() > 0, false`, `r.HasExpiries(), false`},
	{"ttl", "a_range_passes_what_is_held_back", "kv/batch_apply.go",
		`		if err := v.flushIndexes(); err != nil {
			return nil, err
		}
`, ``},
	{"ttl", "a_crowd_holds_back_beside_calls_that_do_not", "kv/coalesce.go",
		`	if rowsOf(group, tx.verbs.name) {`, `	if true {`},
	{"ttl", "a_commit_drops_buffered_index_changes", "kv/indexbuffer.go",
		`		runs = append(runs, more...)`, `		_ = more`},
	{"replay", "the_expiry_index_is_not_logged_early", "txn/writeahead.go", `	for _, r := range last {
		for i := range`, `	for _, r := range last[:max(len(last)-1, 1)] {
		for i := range`},
	{"replay", "batch_logs_no_deletion", "txn/apply.go", `		return w.logDelete(id, c.Key)
	}`, `		return w.logged()
	}`},
	{"ttl", "evict_leaves_the_expiry_row", "ttl/purge.go",
		`	if _, err := r.Tx.Delete(r.Family.ExpiryIndex(), d.row(i)); err != nil {
		return err
	}
`, ``},
	{"ttl", "evict_deletes_a_key_with_a_new_expiry", "ttl/purge.go", `	if !confirmed {
		was, err`, `	if !confirmed && false {
		was, err`},
	{"ttl", "evict_deletes_what_is_not_expired", "ttl/purge.go",
		`		if Expired(now, n.Expiry) {`, `		if now > 0 {`},
}
