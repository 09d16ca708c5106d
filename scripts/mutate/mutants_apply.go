package main

// applyMutants are mistakes in what transactions change pages with.
var applyMutants = []mutant{
	{"ack", "a_bad_row_takes_those_beside_it_along", "kv/coalesce.go", `		case !unchanged():
			setSeparate`, `		default:
			setSeparate`},
	{"ack", "who_is_left_out_of_a_commit_is_told_that_it_stands", "kv/coalesce.go", `		case one.separate:
`, `		case one.separate && news != requestCommitted:
`},
	{"ack", "a_commit_whose_fate_is_unknown_is_tried_again", "kv/space.go",
		` && !errors.Is(err, ErrCommitUnknown)`, ``},
	{"check", "pages_that_a_failed_checkpoint_wrote_are_trusted", "pager/writeback.go",
		`	f.verified.clear()        // before accessed: a page that is not accessed is checked against verified
	f.accessed.clear()
`, ``},
	{"replay", "heads_of_before_are_kept_when_keys_share_less", "internal/keyorder/run.go",
		`		r.stale = r.Len()`, `		r.stale = 0`},
	{"replay", "equal_heads_are_equal_keys", "internal/keyorder/run.go", `		if to-from > 1 {`,
		`		if to-from > 1 && false {`},
	{"replay", "keys_that_share_no_prefix_are_ordered_as_if", "internal/keyorder/run.go", `		r.prefix--
`, `		break
`},
	{"rollback", "a_finger_leaves_the_extent_of_the_row_that_it_replaces", "btree/insertcursor.go",
		`		if infoAt(b, s)&infoOverflow != 0 {`,
		`		if infoAt(b, s)&infoOverflow != 0 && false {`},
	{"rollback", "a_finger_stays_though_a_row_went", "btree/change.go", `		f.reset()
`, ``},
	{"rollback", "a_finger_follows_to_the_wrong_child", "btree/put.go",
		`			p.cursor.path[1].set(b, i+1, n+1)`,
		`			p.cursor.path[1].set(b, i, n+1)`},
	{"rollback", "pieces_of_an_undo_lie_in_one_place", "pager/undobuffer.go",
		`	at := bufferOffset(s.last)<<32 | bufferOffset(len(*c))`,
		`	at := bufferOffset(s.last) << 32`},
	{"room", "deletes_grow_the_file_before_they_fill_holes", "pager/alloc.go",
		`	if pastBound || NoSpace(err) {`,
		`	if purpose == ForPut && pastBound || NoSpace(err) {`},
	{"room", "free_pages_are_no_room_for_what_is_kept", "pager/reservation.go",
		`	pages := a.space.end + atEnd + left - min(left, freeAfter)`,
		`	pages := a.space.end + atEnd + left`},
	{"room", "puts_take_the_last_free_pages", "pager/alloc.go",
		`	if err := a.reserve(n, false, how.Purpose); err != nil {`,
		`	if err := error(nil); err != nil {`},
	{"room", "the_free_map_of_its_own_pages_is_not_counted", "pager/reservation.go",
		`		if reserved <= pages {`, `		if true {`},
	{"room", "the_file_grows_past_its_directory", "pager/reservation.go",
		`	if most := a.MostPages(); pages > most {`, `	if most := a.MostPages(); false {`},
	{"rollback", "what_a_branch_pointed_to_is_not_kept", "btree/inplace.go",
		`	r.undo.Record(s.ref.Pgid, at, at+childSize)`, `	_ = at`},
	{"rollback", "a_patch_that_its_branch_does_not_know_is_made_again", "btree/inplace.go",
		`		p.newDelta = ref`, `		_ = ref`},
	{"rollback", "a_keeper_that_is_back_counts_as_lent", "pager/undolog.go", `	u.split = 0
	if bytes`, `	if bytes`},
	{"rollback", "a_row_that_goes_into_a_patch_in_place_is_not_counted", "btree/inplace.go",
		`		p.cursor.setLeaf(ref, nil, 0, false)
	}
	if !p.was.Found {`, `		p.cursor.setLeaf(ref, nil, 0, false)
	}
	if false {`},
	{"rollback", "pages_that_are_read_are_changed_in_place", "pager/undolog.go",
		`	return s != nil && s.dirty != nil && s.owner > u.newestSnapshot && s.owner < u.owner`,
		`	return s != nil && s.dirty != nil && s.owner < u.owner`},
	{"rollback", "an_undo_is_forgotten_while_readers_may_ask", "pager/undolog.go",
		`		if len(versions) > 0 && versions[0] < u.owner {`,
		`		if len(versions) > 0 && versions[0] < u.owner && false {`},
	{"rollback", "an_undo_is_forgotten_when_its_commit_is_seen", "pager/undolog.go",
		`version >= u.committed && !u.sealed {`, `version >= u.committed {`},
	{"rollback", "readers_look_at_pages_that_are_being_restored", "pager/undolog.go",
		`		u.restore(k, unsafe.Slice((*byte)(s.dirty), u.pool.pageSize))
`, `		s.changed.Store(0)
		u.restore(k, unsafe.Slice((*byte)(s.dirty), u.pool.pageSize))
`},
	{"laid", "leaves_are_never_synced_before_the_log", "wal/externalrefs.go",
		`unsynced, durable = true, durable || g.buffer.ref == refSyncFirst`,
		`unsynced, durable = g.buffer.ref == refSyncFirst, durable || g.buffer.ref == refSyncFirst`},
	{"laid", "only_a_commit_of_its_own_syncs_leaves", "wal/externalrefs.go",
		`	unsynced, durable := s.unsyncedRefs, g.sync || g.direct`,
		`	unsynced, durable := false, g.sync || g.direct`},
	{"laid", "every_leaf_is_taken_for_whole", "pager/leafrun.go", `				return false, nil
			}
		}
		first`, `				break
			}
		}
		first`},
	{"laid", "leaves_of_another_epoch_are_whole", "pager/leafrun.go",
		`				h.Epoch != ref.Epoch || !Checksum`, `				!Checksum`},
	{"laid", "a_commit_without_its_leaves_is_an_error", "wal/reader.go",
		`		case errors.Is(err, ErrRefLost):`, `		case err == ErrRefLost:`},
	{"laid", "a_durable_commit_may_lose_its_leaves", "wal/reader.go",
		`p.finish(f, i, img, p.delivered, durable, why)`,
		`p.finish(f, i, img, p.delivered+1<<40, durable, why)`},
	{"laid", "recovery_takes_leaves_as_they_are", "btree/append.go",
		`		copied, b, err := w.Edit(ref, nil)`, `		copied, err := ref, err`},
	{"laid", "a_leaf_is_laid_out_of_order", "btree/append.go",
		` || n > 0 && bytes.Compare(changes[n-1].Key, row.Key) >= 0 {`, ` {`},
	{"laid", "branches_do_not_count_leaves", "btree/append.go",
		`	setChildRows(b, n, i, childRows(b, n, i)+it.rows)`, ``},
	{"rollback", "rows_are_appended_whatever_their_order", "btree/leaf.go",
		`			bytes.Compare(last, row.Key) >= 0 {`,
		`			bytes.Compare(last, row.Key) >= 0 && false {`},
	{"rollback", "rows_are_appended_whatever_the_prefix", "btree/leaf.go",
		`|| !bytes.Equal(row.Key[:p], last[:p]) ||`, `||`},
	{"rollback", "rows_are_appended_left_of_others", "btree/insertcursor.go",
		`	if f == nil || f.leaf == nil || !f.rightmost {
		return 0`, `	if f == nil || f.leaf == nil {
		return 0`},
	{"rollback", "branches_do_not_count_what_is_appended", "btree/insertcursor.go",
		`	f.count(t, uint64(n))`, `	t.Rows += uint64(n)`},
	{"rollback", "keys_go_to_the_first_part", "btree/partition.go", `	return i - 1
}

// Merge`, `	return (i - 1) * 0
}

// Merge`},
	{"rollback", "a_part_that_is_joined_begins_nowhere", "btree/partition.go",
		`			e.items[first].sep = sp
`, `			_ = first
`},
	{"rollback", "branches_that_were_cut_stay", "btree/partition.go",
		`{p.oldEntries.pages, p.newEntries.pages}`, `{nil, p.newEntries.pages}`},
	{"rollback", "a_part_that_became_lower_is_joined_as_it_is", "btree/partition.go",
		`	for t.Depth-1 < level { // del`, `	for t.Depth-1 < level && false { // del`},
	{"rollback", "what_other_hands_have_kept_is_not_undone", "pager/undolog.go",
		`		own.entries = append(own.entries, k.entries...)
`, ``},
	{"rollback", "a_reader_does_not_stop_other_hands", "pager/undolog.go",
		`	for _, k := range u.writers[:max(u.split, 1)] {
		k.stop()`, `	for _, k := range u.writers[:1] {
		k.stop()`},
	{"rollback", "a_second_reader_does_not_wait_for_other_hands", "pager/undolog.go", `	u.sealed = true
	for _, k`, `	u.sealed = true
	u.active.Store(false)
	for _, k`},
	{"rollback", "what_other_hands_have_kept_is_kept_from_readers", "pager/undolog.go",
		`u.writers[:max(u.split, 1)] { // They`, `u.writers[:1] { // They`},
	{"rollback", "hands_take_pages_ahead_from_the_slack", "pager/reservation.go", `ForPut)
	return err == nil && size <= a.Growth.size`, `ForCheckpoint)
	return err == nil && size <= a.Growth.size`},
	{"rollback", "row_counts_are_not_kept", "btree/inplace.go", `		r.undo.Record(s.ref.Pgid, at, at+8)
`, `		_ = at
`},
	{"rollback", "a_cell_that_is_taken_out_is_not_kept", "btree/inplace.go",
		`		d.saveCell(off) // leafRemove clears it
`, ``},
	{"rollback", "what_is_written_behind_the_slots_is_not_cleared", "btree/inplace.go",
		`	r.undo.RecordZeros(id, end, lo(b))
`, ``},
	{"order", "a_step_of_packing_leaves_a_page_out", "btree/relocate.go", `keyOf(b, n, i)...)`,
		`keyOf(b, n, min(i+1, n-1))...)`},
	{"order", "commits_fill_the_end_of_a_file_that_is_compacted", "pager/pagepool.go",
		`below = min(top, below)`, `below = max(top, below)`},
	{"order", "pages_freed_behind_the_ceiling_are_allocated_next", "pager/ceiling.go",
		`return top == 0 || uint64(id) < top`, `return top == 0 || id > 0`},
	{"order", "the_free_map_stays_behind_the_ceiling", "pager/ceiling.go",
		`g.changed = g.changed || above`, `_ = above`},
	{"order", "large_values_ignore_the_ceiling", "pager/freespace.go", `if first+lo+n > below {`,
		`if first+lo+n > below && false {`},
	{"order", "packing_begins_with_pages_that_were_free_a_moment_ago", "pager/alloc.go",
		`	if how.Fit != FitRuns {
		if`, `	if false {
		if`},
	{"room", "deletes_have_what_the_checkpoint_needs", "pager/reservation.go",
		`		left = a.treeTablePages() + a.freeMapPages(atEnd+a.treeTablePages())`,
		`		left = 0`},
	{"room", "the_free_map_asks_for_no_room", "pager/writeback.go",
		`	if err := p.Alloc.reserve(n, false, ForCheckpoint); err != nil {`,
		`	if err := error(nil); err != nil {`},
	{"check", "what_was_written_before_a_failed_sync_is_trusted", "pager/writeback.go",
		`f.mapped && f.verifyGeneration.Load() == 0`, `f.mapped`},
	{"patches", "a_page_with_another_number_loses_its_patch", "pager/delta.go",
		`	fresh, err = p.NewDelta(base, epoch, owner, changes, how)`,
		`	fresh, err = p.NewDelta(base, epoch, owner, changes[:0], how)`},
	{"patches", "the_base_of_a_patch_is_read_where_its_frame_was", "pager/delta.go",
		`	if ref.Epoch > durable {`, `	if true {`},
	{"patches", "a_dropped_patch_of_an_earlier_epoch_is_used_again", "pager/delta.go",
		`	if bp.hasDeltaOf(id, bp.deltas.epoch) {`, `	if true {`},
	{"patches", "memory_of_dropped_patches_is_not_used_again", "pager/delta.go",
		`	if bp.hasDeltaOf(id, bp.deltas.epoch) {`, `	if false {`},
	{"patches", "a_patch_over_a_patch_that_is_being_written_changes_its_base", "pager/delta.go",
		`	if ref.Epoch == epoch {
		base, _, changes`, `	if s := v.pool.table.peek(ref.Pgid); s != nil && s.delta != nil {
		deltaBase, _, changes`},
	{"patches", "a_page_that_no_checkpoint_writes_gets_a_patch", "pager/delta.go",
		`	if ref.Epoch <= bp.captured {`, `	if ref.Epoch < epoch {`},
	{"patches", "the_base_of_a_patch_is_not_proven", "pager/delta.go",
		`	if err := w.verifyHeader(base, b); err != nil {
		return err
	}
	w.dropBase(`, `	w.dropBase(`},
	{"patches", "a_patch_that_is_written_stays", "pager/writeback.go",
		`			atomic.StorePointer(&s.delta, nil)`, `			_ = s`},
	{"patches", "a_patched_page_is_not_written", "pager/alloc.go",
		`n == 1 && p.Pool.unwritten(id))`, `n == 1 && p.Pool.InFrame(id))`},
	{"patches", "cells_that_a_split_has_moved_are_there", "btree/search.go",
		`	if !inBase(changes, i) {`, `	if !inBase(changes, i) && i < 0 {`},
	{"patches", "a_put_finds_cells_that_a_split_has_moved", "btree/delta.go",
		`	if i < from || i >= to {`, `	if false {`},
	{"patches", "a_patch_has_more_room_than_its_page", "btree/delta.go", `			free -= more + leafEntry
`, `			free -= leafEntry
`},
	{"patches", "half_a_leaf_has_the_room_of_the_whole", "btree/delta.go",
		`		free -= cellSize(leaf, slot(leaf, n, j)) + leafEntry`, `		free -= leafEntry`},
	{"patches", "an_extent_that_a_patch_replaces_is_not_given_back", "btree/delta.go",
		`infoAt(leaf, s)&infoOverflow != 0 {
			return false, nil`, `false {
			return false, nil`},
	{"uniform", "a_row_that_is_not_alike_is_put_as_if_it_were", "btree/cell.go",
		`return c.matches(b) && leafFree(b)`, `return leafFree(b)`},
	{"uniform", "a_row_is_replaced_by_one_that_is_not_alike", "btree/leaf.go", `	if !c.matches(b) {
		return false
	}
`, ``},
	{"uniform", "rows_are_appended_that_are_not_alike", "btree/leaf.go",
		`free < 0 || !c.matches(b) {`, `free < 0 {`},
	{"uniform", "a_leaf_that_is_laid_out_stays_as_it_was", "btree/leaf.go", `	} else {
		setShape(b, 0, 0)
	}
`, `	}
`},
	{"uniform", "small_rows_have_no_headers_either", "btree/leaf.go",
		`bodySize(klen, info) >= minUniform`, `bodySize(klen, info) >= 0`},
	{"uniform", "the_next_leaf_is_for_rows_that_are_alike", "btree/split.go",
		`		if int(last.klen) == len(p.cell.key) && last.info == p.cell.info {
`, `		if last.klen > 0 {
`},
	{"uniform", "a_row_that_has_no_room_yet_is_counted", "btree/put.go",
		`	if !p.was.Found && !p.retry {`, `	if !p.was.Found {`},
	{"uniform", "branches_count_a_row_that_has_no_room_yet", "btree/put.go", `	if p.retry {
		return nil
	}
`, ``},
	{"uniform", "headers_take_no_room_in_a_leaf_that_is_laid_out_anew", "btree/put.go",
		`		need += cellHeader*n + p.cell.size() + leafEntry`,
		`		need += p.cell.size() + leafEntry`},
	{"uniform", "headers_take_no_room_in_leaves_that_are_merged", "btree/tree.go",
		`		total += (cellHeader - headerIn(leaf)) * count(leaf)
`, `		_ = leaf
`},
	{"uniform", "a_patch_has_a_row_that_is_not_like_its_base", "btree/delta.go", `	if !p.cell.matches(leaf) {
		return false, nil
	}
`, ``},
	{"uniform", "half_a_leaf_is_uniform_though_its_base_is_not", "btree/delta.go",
		`		writeCells(b, s.cells)`, `		writeLeaf(b, s.cells)`},
	{"uniform", "a_row_is_lost_in_place_that_is_not_alike", "btree/inplace.go",
		`(was.Tag == 0 || p.cell.tag == 0), !p.cell.matches(b):`,
		`(was.Tag == 0 || p.cell.tag == 0):`},
	{"uniform", "rows_are_alike_whatever_follows", "btree/leafsize.go", `		with.klen, with.info = 0, 0
`, ``},
	{"uniform", "proof_takes_any_shape", "btree/validate.go", `case !isShape(klen, info):`,
		`case !isShape(klen, info) && false:`},
	{"uniform", "keys_of_any_length_are_alike_where_leaves_are_merged", "btree/tree.go",
		`bytes.Equal(a[offShape:offShapeZero], b[offShape:offShapeZero])`,
		`bytes.Equal(a[offShape+2:offShapeZero], b[offShape+2:offShapeZero])`},
	{"uniform", "values_of_any_length_are_alike_where_leaves_are_merged", "btree/tree.go",
		`bytes.Equal(a[offShape:offShapeZero], b[offShape:offShapeZero])`,
		`bytes.Equal(a[offShape:offShape+2], b[offShape:offShape+2])`},
	{"uniform", "what_was_put_into_half_a_leaf_has_no_headers", "btree/delta.go",
		`size := headerIn(leaf) + len(c.body)`, `size := len(c.body)`},
	{"uniform", "what_was_put_into_half_a_leaf_has_headers_always", "btree/delta.go",
		`size := headerIn(leaf) + len(c.body)`, `size := cellHeader + len(c.body)`},
	{"room", "what_is_free_counts_twice", "pager/reservation.go",
		`min(a.space.inCurrentRun(n, how), n), ForPut)
	return err == nil && a.Growth.prepare`, `min(2*a.space.inCurrentRun(n, how), n), ForPut)
	return err == nil && a.Growth.prepare`},
	{"room", "the_slack_is_promised", "pager/reservation.go", `ForPut)
	return err == nil && a.Growth.prepare`, `ForCheckpoint)
	return err == nil && a.Growth.prepare`},
	{"ack", "a_crowd_whose_record_is_in_doubt_is_told_to_try_again", "kv/coalesce.go",
		`	case errors.Is(me.inner.Err(), txn.ErrUnknown):
		result`, `	case false:
		result`},
	{"ack", "writes_that_share_what_is_in_doubt_are_tried_again", "kv/coalesce.go",
		`		setSeparate(me.group, false) // The`, `		// The`},
	{"check", "a_gap_ends_at_the_page_above", "btree/gap.go",
		`	ok, _ := c.toSibling(from, forward)`,
		`	s := &c.path[from%maxDepth]
	if forward && s.i+1 >= s.n || !forward && s.i == 0 {
		return false
	}
	ok, _ := c.toSibling(from, forward)`},
	{"check", "a_gap_counts_the_rows_of_the_tree", "btree/gap.go",
		`		g.Rows, g.Ref = rowsBelow(s.b, s.n, s.i), childRef(`,
		`		g.Ref = childRef(`},
	{"check", "a_value_that_is_lost_ends_the_range", "kv/damage.go", `	if lost {`, `	if false {`},
	{"check", "a_gap_out_of_bounds_is_told", "kv/damage.go", `		return
	}
	if bytes.Compare(d.Lower, c.lo) < 0 {`, `		_ = d
	}
	if bytes.Compare(d.Lower, c.lo) < 0 {`},
}
