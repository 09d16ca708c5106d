package main

// storeMutants are mistakes in transactions, checkpoints and recovery.
var storeMutants = []mutant{
	{"check", "a_log_of_another_store_keeps_no_store_closed", "txn/recover.go",
		`	if err := otherStoreLog(s.path, newest, found); err != nil {`,
		`	if err := otherStoreLog(s.path, newest, found); err != nil && false {`},
	{"check", "damage_looks_like_an_older_main_file", "txn/foreignlog.go",
		`	if !found.Absent(wal.LSN(newest.LogStart)) {
		return nil
	}
`, ``},
	{"order", "room_is_given_beside_a_checkpoint", "txn/spacereserve.go", `	if !tryLock(k.mu) {
		return false
	}
	defer func() { <-k.mu }()
`, ``},
	{"order", "a_clean_meta_page_says_more_was_durable_than_there_was", "txn/checkpoint.go",
		`uint64(start), uint64(durable)`, `uint64(start), uint64(max(start, durable))`},
	{"check", "a_clean_meta_page_does_not_say_where_the_log_ended", "txn/checkpoint.go",
		`uint64(start), uint64(durable)`, `uint64(start), uint64(min(0, durable))`},
	{"sync", "the_log_is_not_synced_before_a_checkpoint", "txn/checkpoint.go",
		`	if err := k.s.log.Sync(); err != nil {
		return k.s.logError(err)
	}
	k.s.queue.makeVisible()
	if err := k.s.pg.Write`, `	if err := k.s.pg.Write`},
	{"sync", "the_directory_of_a_new_store_is_not_synced", "txn/recover.go",
		`		if err := o.FS.SyncDir(filepath.Dir(path)); err != nil {`,
		`		if err := error(nil); filepath.Dir(path) == "" && err != nil {`},
	{"order", "the_log_is_cut_before_the_meta_page_is_synced", "txn/checkpoint.go",
		`	k.metaWritten = c.meta.Epoch
	if err := k.s.pg.WriteMeta(c.meta); err != nil {
		return k.s.fail(err)
	}`, `	k.metaWritten = c.meta.Epoch
	if err := k.s.log.Release(c.cut); err != nil {
		return k.s.logError(err)
	}
	if err := k.s.pg.WriteMeta(c.meta); err != nil {
		return k.s.fail(err)
	}`},
	{"order", "pages_that_a_snapshot_sees_are_used_again", "txn/reclaim.go",
		`	if v, found := f.reads(q.held); found {`,
		`	if v, found := f.reads(q.held); found && false {`},
	{"order", "frames_that_earlier_readers_may_ask_for_are_taken", "txn/framereclaim.go",
		`s.reclaimer.oldestRead() < r.serial {`, `s.reclaimer.oldestRead() < r.serial && false {`},
	{"order", "frames_are_used_again_while_readers_look_at_them", "txn/reclaim.go",
		`deferredFree{afterVersion: version})`,
		`deferredFree{birth: version, afterVersion: version})`},
	{"room", "replay_has_no_pages_of_overwritten_values_back", "txn/free.go",
		`	if h.w.noLog && h.s`, `	if false && h.s`},
	{"room", "what_does_not_fit_in_the_order_of_keys_is_given_up", "txn/open.go",
		`openReplaying(path, o, true)`, `openReplaying(path, o, false)`},
	{"hostile", "a_log_may_name_a_leaf_again_and_again", "txn/replay.go",
		`	if p.leaves += r.leaves; p.leaves > most {`, `	if false {`},
	{"order", "recovery_starts_from_the_newest_meta_page", "txn/recover.go",
		`s.recoverFrom(candidates[try], newest`,
		`s.recoverFrom(candidates[len(candidates)-1-try], newest`},
	{"order", "what_replay_showed_is_not_made_durable", "txn/recover.go",
		`	if err := s.publishReplayed(m, newest, read.tail); err != nil {
		return true, noSpace(err)
	}
	return true, s.removeObsolete(found)`, `	readOnly := s.o.ReadOnly
	s.o.ReadOnly = true
	err = s.publishReplayed(m, newest, read.tail)
	s.o.ReadOnly = readOnly
	return true, noSpace(err)`},
	{"order", "no_fence_before_recovery_writes", "txn/recover.go", `	if two {
		if newest, err`, `	if two && false {
		if newest, err`},
	{"order", "the_log_is_not_proved_before_recovery_writes", "txn/recover.go",
		`	if len(candidates) == 2 {`, `	if len(candidates) == 3 {`},
	{"ack", "a_version_is_visible_before_it_is_durable", "txn/commitqueue.go",
		` || v.syncLSN > durable {`, ` {`},
	{"ack", "a_durable_commit_is_a_relaxed_one", "txn/commit.go",
		`	v := w.commitVersion(end, d == Sync, false)`, `	d = NoSync
	v := w.commitVersion(end, d == Sync, false)`},
	{"ack", "a_relaxed_commit_does_not_wait_for_what_it_builds_on", "txn/commitqueue.go",
		`	if err == nil && !sync && q.log.Durable() < v.syncLSN {`,
		`	if err == nil && !sync && false {`},
	{"ack", "a_commit_without_changes_does_not_wait", "txn/commit.go",
		`		return s.waitVisible(v)`, `		_ = v
		return nil`},
	{"ack", "a_sync_commit_is_not_noted", "txn/commit.go", `	if sync {
		v.syncLSN = lsn
	}`, ``},
	{"ack", "the_first_failure_does_not_stick", "txn/failure.go",
		`	if f.failed.CompareAndSwap(nil, &failure{err}) &&`,
		`	if f.failed.CompareAndSwap(&failure{err}, nil) &&`},
	{"check", "a_page_may_be_freed_by_an_old_name", "txn/free.go",
		`	if owner != 0 && ref.Epoch <= h.s.openedEpoch {`,
		`	if owner != 0 && ref.Epoch <= h.s.openedEpoch && false {`},
	{"replay", "pages_of_named_values_are_not_claimed", "txn/recover.go",
		`	if err := verified.claimPages(); err != nil {`,
		`	if err := error(nil); err != nil {`},
	{"replay", "values_that_a_log_names_are_forgotten", "txn/replay.go",
		`	p.refs = append(p.refs, r.extentPlace)`, `	_ = r.extentPlace`},
	{"check", "numbers_of_replayed_commits_are_not_looked_at", "txn/replay.go",
		`p.headed && p.seq != p.last.seq+1 {`, `p.headed && false {`},
	{"check", "two_recoveries_may_end_differently", "txn/replay.go",
		`	if err == nil && retry && p.last.seq != newest.Seq {`,
		`	if err == nil && retry && p.last.seq != newest.Seq && false {`},
	{"replay", "a_commit_that_is_not_there_is_counted", "txn/replay.go",
		`		p.lost, p.refs =`, `		p.last.seq = p.seq
		p.lost, p.refs =`},
	{"replay", "places_of_a_commit_that_is_not_there_are_claimed", "txn/replay.go",
		`lostCommit{c.Commit, err}, p.refs[:p.last.refs]`, `lostCommit{c.Commit, err}, p.refs`},
	{"replay", "a_second_read_goes_on_behind_the_end_of_the_log", "txn/replay.go",
		`	p.lost = verified.lost`, `	_ = verified.lost`},
	{"replay", "operations_of_a_commit_that_is_not_there_are_applied", "txn/replay.go",
		`		p.buffer.discard()
	}
	return p.badRecord`, `	}
	return p.badRecord`},
	{"replay", "pages_change_while_replay_writes_them", "txn/replayspill.go",
		`	w.owner = s.serial
`, ``},
	{"room", "pages_that_replay_wrote_are_not_reused", "txn/free.go",
		`(owner == h.owner || replayed)`, `(owner == h.owner || replayed && false)`},
	{"replay", "an_operation_that_goes_on_in_the_next_part_is_lost", "txn/redoread.go",
		`append(d.carry[:0], rest...)`, `d.carry[:0]`},
	{"replay", "what_follows_an_operation_of_two_parts_is_lost", "txn/redoread.go", `		b = rest
	}
	return nil, nil`, `		if b = rest; len(d.carry) > 0 {
			return nil, nil
		}
	}
	return nil, nil`},
	{"check", "a_commit_may_end_within_an_operation", "txn/redoread.go",
		`	if !d.headed || len(d.carry) > 0 {`, `	if !d.headed {`},
	{"check", "a_commit_may_end_within_a_large_value", "txn/replay.go", `		if p.large != nil {
			err = p.short()
		} else if err`, `		if err`},
	{"order", "a_large_value_passes_what_came_before_it", "txn/replaylarge.go",
		`	if err := p.applyBuffer(); err != nil {`, `	if err := error(nil); err != nil {`},
	{"order", "operations_of_other_kinds_pass_those_on_keys", "txn/replayapply.go",
		`		b.closeRuns()
		b.runs = append`, `		b.runs = append`},
	{"room", "what_a_buffer_costs_is_not_counted", "txn/replayapply.go", `	b.cost += cost
`, `	b.cost = cost
`},
	{"replay", "a_run_goes_on_in_the_next_buffer", "txn/replayapply.go",
		`	b.closeRuns()
	b.ops.All, b.runs, b.cost`, `	b.ops.All, b.runs, b.cost`},
	{"replay", "a_named_value_is_put_without_it", "txn/replayapply.go",
		`		if r.op == opSetTag || r.op == opPutNamed {`, `		if r.op == opSetTag {`},
	{"room", "replay_keeps_what_was_dropped", "txn/replayapply.go", `		err = p.w.emptyTrash()`,
		`		_ = p.w.emptyTrash`},
	{"laid", "leaves_may_be_changed_by_who_has_laid_them", "txn/leafrun.go",
		`w.s.epoch, w.firstOwner, run`, `w.s.epoch, w.owner, run`},
	{"room", "a_large_value_is_held", "txn/replaylarge.go", `	if size < largeValue {`,
		`	if size < largeValue || true {`},
	{"replay", "pages_are_born_in_the_epoch_of_a_named_value", "txn/replay.go",
		`		s.epoch = max(s.epoch, r.ref.Epoch+1)
`, ``},
	{"order", "pages_of_a_named_value_are_used_again_at_once", "txn/reclaim.go",
		`	if f.epoch == next && !f.logReferenced {`, `	if f.epoch == next {`},
	{"order", "a_value_that_its_own_transaction_overwrote_is_given_back_at_once", "txn/commit.go",
		`		if f.bornInTx && !f.logReferenced {
			s.pg`, `		if f.bornInTx {
			s.pg`},
	{"order", "the_log_names_values_of_relaxed_commits", "txn/writer.go",
		`	if w.relaxed && (w.s.o.MaxBytes == 0 || int64(size) <= w.s.logShare()/logRefShare) {`,
		`	if false {`},
	{"replay", "a_log_that_was_read_is_used_with_the_other_meta_page", "txn/recover.go",
		`		if err != nil || try > 0 {`, `		if false {`},
	{"check", "a_log_that_does_not_begin_where_it_should_is_used", "txn/recover.go",
		`			err = found.Chain(wal.LSN(m.LogStart))`, ``},
	{"rollback", "a_finger_is_not_forgotten", "txn/ops.go", `	if w.cursorsAt != w.mods {`,
		`	if w.cursorsAt != w.mods && false {`},
	{"rollback", "a_rollback_keeps_room_for_its_leaves", "txn/writer.go",
		`	w.s.pg.Alloc.ReleaseReplay(w.leafRunPages)
`, ``},
	{"room", "a_log_has_no_bound", "txn/spacewait.go",
		`	s.log.SetBound(max(s.logShare(), s.o.MaxBytes-s.pg.Alloc.FileBytes()) - s.segment)`,
		``},
	{"room", "the_log_of_rolled_back_transactions_stays", "txn/checkpoint.go",
		`(k.s.head.serial != k.capturedSer || k.s.log.Volume() > k.logSince.Load())`,
		`k.s.head.serial != k.capturedSer`},
	{"room", "a_bulk_load_has_no_checkpoint_before", "txn/bulk.go",
		`!s.wantsCheckpoint() && !s.mayFree()`, `!s.wantsCheckpoint()`},
	{"room", "no_checkpoint_is_awaited_for_the_table", "txn/commit.go", `				w.refused = err
`, ``},
	{"room", "freed_space_is_not_waited_for", "txn/spacewait.go",
		`	return gain >= few && freed > spare`, `	return false`},
	{"room", "a_refused_put_is_forgotten", "txn/spacewait.go",
		`	s.refusal.pages, s.refusal.waiting = max(s.pg.Alloc.Spare(), 0)+missing, true`, ``},
	{"room", "deletes_are_no_reason_to_fit", "txn/commit.go",
		`		s.refusal.shrunk = s.refusal.pages > 0`, ``},
	{"room", "dropped_trees_are_no_space", "txn/spacewait.go", `		gain = max(gain, few)`,
		`		gain = max(gain, 0)`},
	{"room", "snapshots_are_waited_for", "txn/spacewait.go",
		`max(int64(q.pg.Alloc.Unfree())-q.pinnedPages, 0)`, `int64(q.pg.Alloc.Unfree())`},
	{"room", "nothing_is_lent_until_the_checkpoint", "txn/spacewait.go",
		`max(s.logShare()-loan, s.log.Bytes()+s.segment)`,
		`max(s.logShare(), s.log.Bytes()+s.segment)`},
	{"room", "a_loan_is_lost_to_what_is_gained", "txn/spacewait.go",
		`		gain += bound / int64(s.pg.PageSize())`, `		_ = bound`},
	{"room", "a_parallel_apply_of_deletes_is_bound", "txn/parallel.go",
		`		defer w.usePurpose(pager.ForDelete)()`, ``},
	{"room", "large_pages_have_no_more_rows_of_the_table", "txn/treetable.go",
		`w.PageSize() / pager.MinPageSize * minTreeTableRows`, `1 * minTreeTableRows`},
	{"room", "a_batch_that_is_foretold_is_of_one_tree", "txn/writeahead.go",
		`len(w.changed)+len(last)`, `len(w.changed)+1`},
	{"room", "a_log_of_void_parts_is_nothing_to_write", "txn/checkpoint.go",
		` || k.s.log.Volume() > k.logSince.Load())`, `)`},
	{"rollback", "a_rollback_keeps_its_pages", "txn/writer.go", `	w.freeAllocated(0)
	w.finish()`, `	w.finish()`},
	{"rollback", "a_rollback_keeps_what_it_has_handed_to_the_log", "txn/writer.go",
		`	if w.flushed > 0 && !w.submitted.logged {
		w.s.log.Abort()
	}
	w.s.pg.Undo.Rollback()`, `	w.s.pg.Undo.Rollback()`},
	{"rollback", "what_is_changed_in_place_is_not_undone", "txn/writer.go", `	w.s.pg.Undo.Rollback()
`, ``},
	{"rollback", "a_transaction_that_has_ended_keeps_the_writer", "txn/tx.go",
		`	w, tx.w = tx.w, nil`, `	w = tx.w`},
	{"rollback", "a_savepoint_does_not_end_changes_in_place", "txn/savepoint.go", `	w.disableUndo()`, `	//`},
	{"rollback", "pages_are_changed_in_place_before_the_last_commit_is_visible", "txn/pages.go",
		`	if s.queue.empty() && s.pg`, `	if s.pg`},
	{"rollback", "a_reader_does_not_stop_changes_in_place", "txn/snapshots.go",
		`				undo.Seal()`, `				_ = undo`},
	{"replay", "a_second_recovery_leaves_the_page_of_the_first", "txn/recover.go",
		`	if !sameState(m, newest) && !isRetry(m, newest, found) || s.o.ReadOnly {`,
		`	if !sameState(m, newest) || s.o.ReadOnly {`},
	{"replay", "a_large_value_is_not_the_one_of_its_record", "txn/replay.go",
		`		if err == nil && r.leaves == 0 {`, `		if err != nil {`},
	{"laid", "leaves_that_are_freed_may_be_used_again", "txn/free.go",
		`	f.logReferenced = owner == h.firstOwner ||`, `	f.logReferenced = false &&`},
	{"laid", "leaves_that_their_transaction_frees_may_be_used_again", "txn/free.go",
		`	f.logReferenced = owner == h.firstOwner ||`, `	f.logReferenced =`},
	{"laid", "recovery_uses_the_pages_of_leaves_again", "txn/leafrun.go",
		`		w.s.pg.Pool.SetOwner(id, w.firstOwner)`, `		w.s.pg.Pool.SetOwner(id, w.owner)`},
	{"laid", "pages_of_leaves_are_not_claimed", "txn/redo.go",
		`return r.op == opPutNamed || r.op == opLeaves`, `return r.op == opPutNamed`},
	{"laid", "leaves_are_laid_whatever_comes_before", "txn/leafrun.go",
		`	if !f.Beyond(changes[0].Key) {`, `	if f == nil {`},
	{"laid", "leaves_are_laid_of_what_ended_the_leaf_before", "txn/leafrun.go",
		` && bytes.Compare(last, changes[n].Key) < 0 {`, ` {`},
	{"laid", "leaves_are_laid_in_commits_that_wait", "txn/leafrun.go", `!w.relaxed || `, ``},
	{"rollback", "half_of_what_is_appended_is_not_in_the_redo", "txn/apply.go",
		`		for ; n > 0; n-- {`, `		i += n / 2
		for n -= n / 2; n > 0; n-- {`},
	{"rollback", "more_hands_come_to_a_round_than_it_has", "txn/parallelworker.go",
		`; i < r.workers {`, `; i < r.workers || r.applier.w != nil {`},
	{"rollback", "a_checkpoint_lends_no_hand", "txn/framereclaim.go", `{ r.s.job.join() }`, `{}`},
	{"rollback", "pages_that_other_hands_have_taken_are_lost", "txn/parallel.go",
		`		w.allocated.pushAll(&k.allocated)
`, ``},
	{"rollback", "pages_that_hands_take_ahead_are_lost", "txn/pages.go",
		`			break // allocate returns the error when a page is needed
		}
		h.allocated.push(pageRun{id, 1})
`, `			break // allocate returns the error when a page is needed
		}
`},
	{"rollback", "hands_ask_the_disk_for_pages_ahead", "txn/pages.go",
		`	if !h.s.pg.Alloc.HasFreePages(uint64(n), h.policy) {`,
		`	if !h.s.pg.Alloc.HasFreePages(uint64(n), h.policy) && false {`},
	{"rollback", "what_hands_leave_becomes_more_and_more", "txn/pages.go",
		`	if n := len(h.spare); n > 0 {`, `	if n := len(h.spare); n > 0 && h.allocMu == nil {`},
	{"rollback", "a_hand_frees_pages_that_there_are_not", "txn/free.go",
		`id >= t.from && id < t.to && freed < t.pages`, `id >= t.from && freed < t.pages`},
	{"rollback", "a_hand_frees_any_number_of_pages", "txn/free.go",
		`id >= t.from && id < t.to && freed < t.pages`, `id >= t.from && id < t.to`},
	{"rollback", "pages_that_are_there_ahead_are_not_owned", "txn/pages.go",
		`	return h.s.pg.Reuse(id, h.owner)`, `	return h.s.pg.Reuse(id, 0)`},
	{"rollback", "pages_that_other_hands_have_freed_stay", "txn/parallel.go",
		`		w.freed = append(w.freed, k.freed...)
`, ``},
	{"rollback", "a_hand_that_failed_is_not_heard", "txn/parallel.go",
		`			err = w.s.spaceError(unallocated.err)
		}
		if err != nil {`, `			err = w.s.spaceError(unallocated.err)
		}
		if err != nil && false {`},
	{"rollback", "a_drop_keeps_a_tree", "cf/catalog.go",
		`	for id := f.Base; id < f.Base+treesPerFamily; id++ {
		if !tx.Exists(id) {`, `	for id := f.Base; id < f.Base+1; id++ {
		if !tx.Exists(id) {`},
	{"order", "who_frees_much_gives_back_little", "txn/commit.go", `	if freed > reclaimStep {`,
		`	if false {`},
	{"order", "pages_are_written_before_they_are_moved", "txn/compact.go",
		`	if err := k.movePages(max(step/16, shrinkLeast)); err != nil {
		return err
	}
`, ``},
	{"order", "pages_are_moved_before_what_is_free_came_back", "txn/compact.go",
		`	if _, err := k.s.reclaimer.reclaim(reclaimAll); err != nil {
		return err
	}
	r := `, `	r := `},
	{"room", "replay_keeps_leaves_that_were_given_up", "txn/pages.go",
		`h.s.logOrder && len(h.spare) > 0`, `false`},
	{"room", "the_file_is_cut_before_the_log_is_gone", "txn/close.go", `		err := log.Close(clean)
		if`, `		_ = s.pg.Alloc.TrimFile(clean)
		err := log.Close(clean)
		if`},
	{"room", "a_log_without_commits_takes_pages", "txn/recover.go", `	case tail.Commits == 0:
`, `	case false:
`},
	{"room", "a_change_that_takes_no_page_asks_for_no_room", "txn/store.go",
		`	if err := s.pg.Alloc.EnsureReserve(); err != nil {`,
		`	if err := error(nil); err != nil {`},
	{"patches", "a_page_with_another_number_keeps_the_first", "txn/pages.go",
		`	return fresh, true, h.Free(ref)`, `	return fresh, true, nil`},
	{"patches", "what_patches_change_goes_like_other_pages", "txn/pages.go",
		`		h.freed[n].deltaBase = ref == base`, `		h.freed[n].deltaBase = false`},
	{"patches", "memory_of_patches_goes_with_their_checkpoint", "txn/reclaim.go",
		`	q.detach(c.pages.Deltas, version)`, `	q.pg.ReturnFrames(c.pages.Deltas)`},
	{"patches", "memory_of_patches_stays", "txn/reclaim.go", `	q.detach(c.pages.Deltas, version)
`, ``},
	{"order", "the_base_of_a_delta_is_free_when_its_checkpoint_begins", "txn/reclaim.go",
		`		if f.afterCheckpoint > q.durable {`,
		`		if f.afterCheckpoint > q.pg.Pool.Captured() {`},
	{"order", "the_base_of_a_delta_is_free_under_its_readers", "txn/reclaim.go",
		`		f.afterVersion = q.mergedAt`, `		f.afterVersion = 0`},
	{"room", "a_snapshot_that_ends_frees_nothing", "txn/reclaim.go",
		`		limit, err = q.unpin(limit)`, `		err = nil`},
	{"room", "free_map_pages_are_lost", "txn/reclaim.go", `	for _, ref := range freed {`,
		`	for _, ref := range freed[:0] {`},
	{"patches", "every_leaf_gets_a_patch", "txn/tx.go",
		`	w.mayDelta = int64(s.pg.Alloc.UsedPages())*int64(s.pg.PageSize()) > s.checkpointer.fullFrames()`,
		`	w.mayDelta = true`},
	{"patches", "patches_have_no_bound", "txn/pages.go",
		`	if !h.mayDelta || h.allocMu == nil && !h.hasDeltaMemory() || `,
		`	if !h.mayDelta || `},
	{"rollback", "what_was_logged_ahead_is_not_taken_back", "txn/writeahead.go", `	if !a.logged {
		return
`, `	if true {
		return
`},
	{"room", "a_row_splits_one_leaf_at_most", "txn/writeahead.go", `copied + moved + filled`,
		`copied + min(there+filled, uint64(changes))`},
	{"room", "what_is_logged_ahead_may_find_no_pages", "txn/writeahead.go", ` &&
		tx.s.pg.Alloc.HasSpace(w.pagesFor(changes, bytes), w.policy)`, ``},
	{"sync", "what_takes_it_back_is_not_synced", "txn/writeahead.go",
		`			err = s.log.Wait(end, true)`, `			err = s.log.Wait(end, false)`},
	{"order", "a_void_is_written_after_a_failure", "txn/writeahead.go", `	err := s.failure()
	if err == nil {
		var end`, `	var err error
	if err == nil {
		var end`},
	{"ack", "a_record_that_could_not_be_taken_back_is_not_in_doubt", "txn/writeahead.go",
		`	return fmt.Errorf("%w: %w", ErrUnknown, err)`, `	return fmt.Errorf("%w", err)`},
}
