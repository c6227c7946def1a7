//! How it works and why it is right: each rule, who keeps it, what it rests on, which model checks it, which mutant fails it; or,
//! where no model does, which test.
//!
//! Files are those of `src/`, models those of `loom-tests/` (file, then test), mutants those of `loom-tests/mutants/`:
//! `ci/loom.sh --mutants` applies each to the source and requires the model it names to fail. "Under the mutex" means the
//! mutex of one slot, `slow::locked`. That what this page cites exists is checked by `tests/proof.rs`.
//!
//! # The word
//!
//! A slot's word is `[generation: 60 | bay: 1 | phase: 3]` in one `AtomicU64` (`state.rs`). It alone decides whether a send may
//! start; everything else explains it. The bay bit means something in Ready only.
//!
//! | from → to | by | how |
//! |---|---|---|
//! | Idle(g), Failed(g) → Connecting(g′) | election: `Locked::elect`, called by the lane, or for a user's `Ticket` by `Locked::try_elect` | CAS under the mutex |
//! | Connecting(g) → Ready(g, bay) | `Locked::publish`, called by the ticket of g | CAS under the mutex |
//! | Ready(g), Connecting(g) → Failed(g) | `Slot::report` | bare CAS: the only change without the mutex |
//! | Connecting(g) → Failed(g) | `Locked::fail` (the ticket failed, panicked or was dropped), `Locked::expire` (deadline) | CAS under the mutex |
//! | Ready(g), Connecting(g) → Failed(g) | `Locked::update`: the address may be another process's now; `Locked::renew`: this process is another one; no failure is counted | CAS under the mutex |
//! | Ready(g) → Failed(g) | `Locked::is_unresponsive`: no heartbeat answered for `dead_after` | CAS under the mutex |
//! | any but Removed → Removing(g) | `Locked::begin_removal`: a remover, a shutdown, or the lane itself (`Locked::remove_forsaken`) | CAS under the mutex |
//! | Removing(g) → Removed(g) | `Locked::finish_removal`: bays free, no native connect | CAS under the mutex |
//! | (no life) → Idle(g) | `Slot::begin_life` | store; nobody else counts a reference yet |
//!
//! 1. **One word, one life of one generation.** Generations come from one counter of the table (`Shared::next_generation`), so no
//!    two slots, and no two lives of one slot, share a word; and per slot they grow, because each is drawn after the one it
//!    replaces was. So an unchanged word means that nothing happened in between: there is no ABA.
//!    Mutant `generations-are-not-table-wide` fails `ids::a_stale_id_never_reaches_the_next_peer`.
//! 2. **Changes under the mutex are CAS too.** The mutex keeps them from each other, the CAS from a report. A report needs two
//!    rounds at most: Connecting(g) becomes Ready(g) once.
//!    `attempts::a_reported_attempt_is_never_ready`; mutants `publish-by-store`, `word-changed-by-load-and-store`,
//!    `report-is-one-round`, `report-ignores-connecting`.
//! 3. **After a report or a removal returned, nobody who learns of it is admitted on g**, whatever the answer: if it was "stale",
//!    the word had left g before. An entrant reads the word after it is counted in, and a word that left g never comes back.
//!    (In the sense of happens-before: a thread that could not know of the return may still be inside its own `lease()`.)
//!    Asserted in `bays::every_use_precedes_the_close_one_stripe` and `attempts::an_attempt_of_a_removed_peer_is_undone`; mutants
//!    `no-second-look`, `relaxed-change`, `removal-does-not-shut`.
//!
//! # The gate, and why the word is read twice
//!
//! A bay's gate (`gate.rs`) is S stripes `[CLOSED:1 | leases:63]`, a cache line each that the slot's two bays share, and `left`,
//! the stripes not yet empty and CLOSED. A lease (`Slot::enter_if`): load the word; Ready(g, b)? CAS a stripe of bay b from v to v + 1 while it is not CLOSED;
//! load the word again; unchanged? Then use the connection, and leave by one `fetch_sub` on *that* stripe, from any thread.
//!
//! 4. **Permission and count are one word**, so every entry comes before CLOSED in the stripe's order or does not happen.
//!    After CLOSED the count only falls, so exactly one RMW brings the stripe to CLOSED with nobody inside, and exactly one of
//!    those brings `left` to zero: the last leaver (`Leases::leave`) or the closer (`Gates::close`). Nothing here needs `SeqCst`.
//!    Mutants `enter-adds-then-undoes` (a stripe reaches zero more than once) and `leave-on-the-threads-stripe`
//!    (`bays::a_lease_leaves_on_the_stripe_it_entered`).
//! 5. **Every use comes before the close.** Use → leave (Release) → the last one's fence or the closer's RMW (Acquire) → RMW on
//!    `left` (AcqRel, collecting all stripes) → `events` → the driver → a closing thread. Models
//!    `bays::every_use_precedes_the_close_one_stripe`, `bays::every_held_lease_precedes_the_close`,
//!    `bays::every_held_lease_precedes_the_close_two_stripes`; mutants `relaxed-leave`, `no-fence-on-last`, `relaxed-left`,
//!    `close-release`.
//! 6. **Every use comes after the opening of its own connection.** `Bay::fill`, then the stripes' store (Release), then the CAS to
//!    Ready. The entering CAS acquires the opening; it must, because the count it replaces (0, say) recurs in a later
//!    generation, so an Acquire look before it may be of an older opening. Mutants `relaxed-enter`, `relaxed-reopen`,
//!    `relaxed-word`.
//! 7. **The second look rejects the late entrant.** A thread reads Ready(g, b) and is put off; g fails, b drains, is closed, and
//!    opens again for g″. The thread's CAS succeeds on the new opening. Its second look acquires nothing new, because the CAS has
//!    acquired the opening, and before that the word had become Connecting(g″): it differs from Ready(g, b). The thread leaves
//!    like anybody; it may even be the last one out of g″ (`bays::a_late_entrant_may_drain_the_next_generation`).
//!    Mutants `no-second-look`, `late-entrant-does-not-tell`.
//! 8. **Trying again ends.** Only a word that is Ready and newer is tried again. A CLOSED stripe is read with Acquire and was
//!    closed after the word moved (Release), so the next look at the word differs. Mutants `relaxed-look`, `close-acquire`.
//!
//! # DRAINED is only taken from the queue
//!
//! 9. Whoever brought `left` to zero sets DRAINED of that bay in the slot's `events` and pushes the slot (`Slot::drained`). The lane
//!    marks the bay drained from that bit alone (`lane::take_drained`). It may not look at the stripes or `left` instead: the
//!    last leaver has counted itself out and has not told yet, so the lane would take the connection, fill the bay for g″, and
//!    then receive a DRAINED of g that it takes for one of g″: a connection closed in use.
//!    `bays::a_bay_is_drained_when_its_bit_comes_from_the_queue`; mutant `drained-inferred-from-stripes`.
//! 10. **A leaver touches nothing that may be gone.** Not the last one out: nothing after its `fetch_sub`. The last one: its bay holds
//!     a counted reference of the slot until the driver has taken the bit it is about to set; after that RMW it uses only its own
//!     clone of the driver's handle. `bays::every_use_precedes_the_close_one_stripe`; mutant `publish-takes-no-reference`.
//!
//! # The queue
//!
//! `queue.rs`: one Treiber list of slots, pushed by CAS, taken whole by a swap.
//!
//! 11. **Nothing told is lost.** `events` is the queued flag. The `fetch_or` that takes it from 0 pushes; whoever finds it set relies
//!     on a push that the driver has not taken yet. The driver reads `next`, then clears `events` by a *swap*, then looks: what
//!     was told before the swap is seen by the look (AcqRel), what comes after it pushes again.
//!     `queue::news_told_while_the_slot_is_queued_or_processed_is_seen`; mutants `clear-by-store`, `clear-after-look`,
//!     `next-after-clear`, `relaxed-clear`, `relaxed-push`, `relaxed-take`.
//! 12. **A queued slot lives.** The push counts a reference in, which the taker owns. Mutant `no-reference-in-the-queue`.
//! 13. **No wake-up is lost.** Who finds the list empty unparks; the driver parks only after an empty take, and an unpark before
//!     the park is kept by the thread's token. `queue::the_teller_that_finds_the_list_empty_wakes_the_driver`; mutant `never-unpark`.
//! 14. **The queue ends with the driver** (`Queue::end`). The driver ends when the table is abandoned and no peer is live; somebody
//!     may still be between a change and its news. What is told then is told to nobody, and its reference is given back, or the
//!     queue and the table would keep each other alive for ever. Tests: `queue.rs` and `tests/leaks.rs`.
//!
//! # Lives, and look-up by id
//!
//! The slab (`slab.rs`) never frees a slot while anything of the table lives; it uses it again when the last counted reference is
//! gone (`end_life` in `slot/life.rs`). A life starts (`Slot::begin_life`) with its mutex's content, then version (Release), word (Release),
//! references = 1 (Release).
//!
//! 15. **A stale id is refused.** By id one loads the word, *then* the version, enters, and looks again. A Ready word of the next
//!     life was published after its version was written, so who reads the one reads the other; and a word of the earlier life
//!     fails the second look. `ids::a_stale_id_never_reaches_the_next_peer`; mutants `version-before-word`,
//!     `version-is-kept`, `no-second-look-by-id`.
//! 16. **Nobody counts in from zero** (`SlotRef::upgrade`), and who counts in by id sees the version of the life it counted in.
//!     `ids::a_refused_id_gives_back_what_it_counted`, `ids::a_stale_id_is_no_handle_of_the_next_peer`; mutants
//!     `upgrade-keeps-a-dead-slot`, `counted-before-version`.
//! 17. **What a life leaves behind does no harm.** `wanted` and notes carry table-wide generations, so those of an earlier life are
//!     stale; `events` is 0, since a queued slot is counted; transfers, grants and filled bays hold references themselves.
//!     `ids::a_stale_id_never_reaches_the_next_peer`; mutants `generations-are-not-table-wide`, `no-reference-in-the-queue`,
//!     `publish-takes-no-reference`.
//! 18. **What is not listed yet is found.** A slot has a life before it is in the names. A snapshot shows it and its id works; if
//!     its insert then fails it is removed like any peer (`Locked::discard`). Tests: `tests/spec/half_inserted.rs`.
//!
//! # Asking
//!
//! 19. **One push per failed generation, and no request lost.** A refused lease on Idle(g) or Failed(g) raises `wanted` to g
//!     (`Slot::ask`); only the RMW that raised it pushes. Whoever finds it raised relies on that push. The lane elects if
//!     `wanted` is the word's generation. Nobody clears it: a newer failure makes it stale.
//!     `wanted::a_wanted_generation_loses_no_request`, `wanted::a_wanted_generation_causes_no_connect_by_itself`; mutants
//!     `wanted-is-a-bit-cleared-at-the-election`, `wanted-is-a-bit-cleared-after-the-attempt`.
//!
//! # Attempts
//!
//! 20. **One native connect per peer.** `Locked::may_elect` refuses while `slow.connect` is set: from the election until the native
//!     call has returned *and* what came too late is closed (`Locked::connect_returned`). Expiry ends the attempt and gives up its
//!     permit, not this. `attempts::an_attempt_ends_once_and_the_next_one_starts_when_its_connect_is_back`; mutants
//!     `elect-beside-a-running-connect`, `late-connection-is-dropped`.
//! 21. **A bay is reserved at the election and first touched at publish.** Whoever moves the word under the mutex frees the
//!     reservation, so a late ticket has none and its connection is closed as `Superseded`.
//!     `attempts::an_attempt_ends_once_beside_a_connection_that_drains`; mutant `publish-without-its-reservation`.
//! 22. **A report between fill and CAS** leaves an open gate under Failed(g). Only late entrants of older generations enter it, and
//!     their second look rejects them; the lane shuts and drains it like any other (`Locked::settle`).
//!     `attempts::a_reported_attempt_is_never_ready`; mutants `publish-by-store`, `report-ignores-connecting`.
//! 23. **Old before new.** Without `OVERLAP`, an election needs *both* bays Free (`Locked::free_bay`); with it, one.
//!     `attempts::an_attempt_ends_once_beside_a_connection_that_drains`; mutant `draining-bay-is-free`. The number of bays is data,
//!     no order: `one_connect::where_the_transport_allows_one_connection_the_old_one_is_closed_before_the_next_connect`.
//!
//! # Waiters
//!
//! 24. **Everybody gets the outcome of the first attempt that ends after the question.** A slot always has exactly one unresolved
//!     cell. Ending an attempt puts a fresh cell in its place under the mutex and resolves the old one after unlock
//!     (`Locked::end_attempt`). `Locked::join` settles what was reported, reads the word, joins the cell and asks, in one section.
//!     `outcome::a_waiter_gets_the_first_outcome_after_its_question`; mutants `cell-not-refreshed`,
//!     `look-then-join-in-two-sections`, `join-then-ask-in-two-sections`.
//! 25. **Nobody waits for ever**: whatever an election waits for has a timer (`lane::next_look`) that answers the cell: attempt and
//!     drain deadline, overdue close, stuck connect (`Busy`), backoff (answered at the join). A model's clock moves only by hand,
//!     so tests look at the timers: `waiting::who_keeps_a_failed_lease_and_waits_is_told_what_is_not_given_back`,
//!     `waiting::who_waits_behind_a_close_that_hangs_is_told_where_the_native_side_has_one_slot_per_name`. The answer wakes
//!     who waits: `waiting::a_future_is_woken_by_the_outcome_it_waits_for`, `waiting::a_thread_is_woken_by_the_outcome_it_waits_for`;
//!     mutants `waker-left-after-the-look`, `sleep-in-another-section-than-the-look`. It comes also if the driver dies:
//!     `death::who_waits_for_a_peer_is_told`; mutant `waiter-looks-at-the-death-before-it-joins`.
//!
//! # What reporters say
//!
//! 26. The winner of a report pushes a note with its generation (`note.rs`), then the slot; who settles g takes all notes, keeps
//!     g's, drops the rest. A note that comes after its generation was settled joins the same record
//!     (`Locked::join_note`). The slot is told even if the user's error panics while it is shown.
//!     `notes::each_generation_gets_its_own_error`; mutants `notes-overwrite`, `notes-without-generation`, `relaxed-note`.
//!
//! # Records and the epoch
//!
//! 27. **The word decides, the record explains.** Under the mutex the word's CAS comes first, the record's swap only after it won; a
//!     reader takes a record only if it is about the word it read (else `Unsettled`). A record may lag, it is never ahead.
//!     `records::a_record_is_never_ahead_of_the_word`, `records::readers_get_the_words_record_and_it_outlives_them`;
//!     mutants `record-before-word`, `record-answers-alone`.
//! 28. **A record outlives its readers**: replaced ones go to a collector of this crate's own and readers pin it
//!     (`record.rs`). Mutants `record-freed-without-epoch`, `record-read-without-pin`. Records are plain data, so wherever the
//!     collector frees one, no user code runs. A pin may free what others retired, and a thread's first registers it. Nothing on
//!     the way of a granted lease pins, and no native close waits for an epoch.
//!
//! # Transfers and pages
//!
//! 29. **Users and transfers are counted apart** (`bay.rs`): a transfer is counted inside a lease and keeps that count, not the lease.
//!     So "only transfers are left" is: DRAINED came. With `CLOSE_QUIESCES` the lane closes over them, without it waits for them.
//!     `closing::users_are_counted_apart_from_transfers`; mutants `users-and-transfers-in-one-count`,
//!     `never-quiesced-by-the-close`. Who gives a transfer up has no lease: it *visits* the connection (`Locked::visit`), counted
//!     under the mutex while the connection is in its bay, and the lane does not close over a visit.
//!     `closing::a_cancel_comes_before_the_close_or_not_at_all`; mutants `cancel-is-closed-over`, `visit-ends-unseen`.
//! 30. **The last transfer or the lane notices.** The lane changes the word, then looks at the count *by an RMW*; who ends the last
//!     transfer counts out by an RMW, then looks at the word, and tells if it has moved. Both RMW are on one location: if the lane's
//!     was first, the other acquires the word. `closing::the_last_transfer_or_the_lane_notices`; mutants
//!     `transfers-looked-at-by-load`, `relaxed-quiescent`.
//! 31. **A transfer ends once**: one RMW on its own state (`transfer::Core::advance`), under the lock of its home so that quarantine and
//!     quiescence are counted in order. `closing::a_transfer_ends_once`; mutant `end-without-deciding`. Its pages are
//!     free when it is counted out, which who looks acquires: `closing::pages_are_ours_again_when_a_transfer_is_quiescent`; mutants
//!     `relaxed-look-at-quiescence`, `relaxed-return-of-pages`. Whether one that is given
//!     up while it waits for its turn is sent is decided by one CAS on its count of bytes: of the deadline
//!     (`Core::expire`) or of the transport (`Completion::begins`).
//! 32. **A page that is lent comes back** when its grant's gate, made like a stripe, is CLOSED and empty (`grant.rs`). A gate of a
//!     grant never opens again, so it needs no second look. `lending::quiesced_comes_after_every_write`; mutants
//!     `copy-enters-a-revoked-grant`, `copy-hands-nothing-on`, `first-copy-to-leave-finishes`, `last-copy-collects-nothing`,
//!     `revoke-collects-nothing`, `revoke-by-load-and-store`. `lending::a_grant_quiesces_once_whoever_ends_it`; mutant
//!     `revoke-finishes-nothing`.
//!
//! # Names, removal, shutdown
//!
//! 33. **One name, one slot.** Names are one persistent map behind one pointer (`names.rs`, `latest.rs`); an insert replaces the
//!     snapshot in which the name was free. `names::one_name_is_one_slot`; mutant `insert-does-not-look-again`.
//! 34. **No insert after shutdown**: `ShutDown` is a state of that same pointer. `names::no_insert_slips_in_after_the_shutdown`;
//!     mutant `shutdown-is-a-flag-and-a-walk`.
//! 35. **No second connect of a name across a removal.** At Removing the name's entry goes, or becomes `Leaving` until Removed if the
//!     transport has one slot per name or a connect runs (`Shared::leaves`; no election follows Removing).
//!     `successors::a_successor_connects_when_the_last_lease_of_its_predecessor_is_back`,
//!     `successors::a_successor_inserted_beside_the_end_of_its_predecessor_connects`,
//!     `successors::a_successor_removed_first_hands_its_predecessor_on`; mutants `successor-does-not-wait`,
//!     `successor-is-not-told`, `predecessor-is-not-listed`, `predecessor-is-not-handed-on`, `election-revives-a-removed-peer`.
//! 36. **A removal ends once** for all who wait: they stand in one list under the mutex, taken at Removed.
//!     `waiting::every_remover_learns_the_end`, `shutting_down::a_remover_learns_the_same_end`,
//!     `tickets::a_ticket_outlives_the_beginning_of_a_removal_and_not_its_end`; mutants `remover-joins-what-has-ended`,
//!     `removal-begins-twice`, `removal-ends-under-a-connect`.
//! 37. **Shutdown** (`shutdown.rs`): end the names, begin every removal, revoke what is lent; the driver waits for no live peer or
//!     the deadline; an ending thread deregisters what nothing uses and reports; if that hangs the driver reports for it.
//!     `shutting_down::an_attempt_is_undone`, `shutting_down::nobody_is_elected_afterwards`,
//!     `shutting_down::every_lease_precedes_the_close`, `shutting_down::a_grant_is_refused_or_revoked`,
//!     `shutting_down::a_registration_is_refused_or_taken_back`, `shutting_down::a_transfer_keeps_its_region`; mutants
//!     `removal-keeps-the-reservation`, `election-revives-a-removed-peer`, `removed-bay-counts-as-drained`,
//!     `grant-looks-for-the-end-before-it-is-listed`, `register-looks-before-its-turn`, `shutdown-deregisters-what-is-in-use`.
//!     The deadline is a timer: `shutting_down::a_shutdown_ends_at_its_deadline_also_when_every_closing_thread_hangs`.
//!
//! # Another address, another incarnation
//!
//! 38. **An update retires the generation that knows the old address**, under the mutex and before the lane elects again; who waits
//!     gets the outcome of the attempt that goes on, and a report of the old generation is not lost in it (`slow/update.rs`).
//!     `updates::an_update_retires_a_generation_that_somebody_reports`,
//!     `updates::who_waits_gets_the_outcome_of_the_attempt_that_was_not_given_up`, `updates::an_update_in_place_hides_no_report`;
//!     mutants `update-does-not-ask`, `update-leaves-the-word`, `update-fails-who-waits`, `update-settles-an-unseen-report`.
//! 39. **As another process** (`restored.rs`): first the transport has the new boot id, then a walk over all lives retires what
//!     introduced us as the old one. Who connects later does so as the new one.
//!     `incarnations::who_connects_meanwhile_does_so_as_the_new_process`,
//!     `incarnations::an_attempt_of_the_former_process_is_given_up`,
//!     `incarnations::a_connection_of_the_former_process_is_retired_or_reported`,
//!     `incarnations::a_life_that_ends_meanwhile_is_left_to_its_end`; mutants
//!     `peers-are-retired-before-the-transport-changes`, `new-incarnation-leaves-attempts`, `new-incarnation-keeps-connections`,
//!     `walk-without-a-reference`.
//!
//! # Heartbeats
//!
//! 40. **A beat is of one generation** (`slow/beat.rs`): an answer or a probe that comes late changes nothing of the next one.
//!     `heartbeats::an_answer_of_an_old_generation_ends_no_silence_of_the_next_one`,
//!     `heartbeats::a_late_probe_begins_no_silence_of_the_next_generation`, `heartbeats::a_silence_fails_no_later_generation`; mutants
//!     `old-answer-ends-a-silence`, `late-probe-begins-a-silence`, `probe-asks-whichever-is-current`,
//!     `silence-outlives-its-generation`.
//! 41. **A silence fails its generation once**, by CAS under the mutex beside reports, and a probe's lease keeps its connection
//!     from being closed under the native call. `heartbeats::a_silence_or_a_report_fails_a_generation_once`,
//!     `heartbeats::a_probe_keeps_its_connection_open`; mutants `silence-fails-by-store`, `silence-settles-a-report`,
//!     `probe-without-a-lease`.
//!
//! # The driver's death
//!
//! 42. **Who waits is told, and who comes to wait** (`death.rs`): the mark first, then the walk; who joins looks at the mark after the
//!     joining. `death::who_waits_for_a_peer_is_told`, `death::who_inserts_a_peer_and_waits_for_it_is_told`,
//!     `death::who_removes_a_peer_is_told`, `death::who_ends_the_table_gets_its_report`, `death::who_asks_a_peer_is_told`; mutants
//!     `waiter-looks-at-the-death-before-it-joins`, `no-fence-after-the-joining`, `no-fence-at-the-death`,
//!     `waiters-told-before-the-death-is-marked`, `shutdown-does-not-look-at-the-death`, `probe-does-not-look-at-the-death`,
//!     `probes-are-not-told-of-the-death`.
//!
//! # Forks
//!
//! 43. **A child takes no lock of its parent's and ends nothing of it** (`fork.rs`): tables, slots, outcome cells, grants' books,
//!     inboxes, subscriptions and the transports' own remember the process that made them, and each call and each destructor
//!     asks `Process::is_this` first. `Slot::enter_if` asks before it looks at the word. The last counted reference of a slot
//!     ends no life in a child, so nothing that a life keeps alive, the transport among it, is dropped there. Tests:
//!     `tests/fork/rules.rs`, with threads that hold every lock at the fork.
//!
//! # Where two locations are ordered
//!
//! Everything above is one word, a mutex, or a chain of Release and Acquire. Where each side writes one location and reads the
//! other, no such chain helps; these are all the places:
//!
//! | one side | the other side | ordered by |
//! |---|---|---|
//! | `Lease::post`: counts the transfer, looks at the list of registrations | `registration::unlist`: leaves the list, looks at the count | a `SeqCst` fence in each. The count must be that of the *listed* registration: the region may have been taken back and registered again. `registering::a_post_is_refused_or_keeps_its_region`; mutants `no-fence-in-post`, `no-fence-in-unlist` |
//! | `Shared::leaves`: writes `Leaving`, looks at the word | `Shared::has_left`: after the word became Removed, looks at the name | a `SeqCst` fence in each |
//! | [`PeerTable::grant`](crate::PeerTable::grant): lists the grant, looks at the registration | `unlist`: leaves the list, looks for grants | the mutex of the list of grants. `registering::a_grant_is_refused_or_keeps_its_region`; mutant `grant-looks-for-its-region-before-it-is-listed` |
//! | a waiter, a remover, a probe, a shutdown, a deadline of a transfer: joins, then looks whether the driver died | the driver dies: says so, then takes those who joined | the mutex each joins under. A peer that is inserted meanwhile is not seen by the walk: two `SeqCst` fences, mark and walk against life and look (mutant `no-fence-at-the-death`) |
//! | the last transfer and the lane (30) | | RMWs on one of the two locations |
//!
//! # What is freed by whom
//!
//! | object | freed by | kept alive by |
//! |---|---|---|
//! | names' snapshot | whoever replaces the next one, or the driver before it sleeps; never a reader | being current; readers' looks |
//! | slot's life | whoever gives back its last counted reference | handles, `ready()` futures, queue entries, the driver's line and deferred slots, filled bays, transfers, grants, tickets and closes that run, the lane itself until Removed |
//! | slot's memory, slab | the last reference of the table's shared part | table handles, each life, the driver, pools' jobs |
//! | connection | a closing thread, in [`Transport::disconnect`](crate::Transport::disconnect) | its bay's gate: leases; visits; and transfers, unless the close quiesces them. One that may not be closed again is forgotten, never dropped |
//! | record | the collector, on any thread that pins | being current; readers' pins |
//! | note | who settles the slot, after unlock; or the place's memory | its list |
//! | address | a closing thread at Removed; the inserting thread if not taken over | the slot; the ticket of an attempt that runs |
//! | outcome cell | the last waiter, or who resolved it | the slot while unresolved; its waiters |
//! | transport's error | the last waiter of its attempt; the connecting thread if there is none | the outcome cell |
//! | transfer | the last of its handle, its completion, its peer's list | the same; in the list until quiescent |
//! | grant | the last of its handle, its loans, the books | the books until revoked and quiesced; holds |
//! | region's bytes | the last of regions, slices, transfers, grants, registrations | the same |
//! | registration | a deregistration, or the ending thread | transfers and grants of its region forbid both |
//! | pools' threads | themselves: idle for 2 s, or at the driver's end | jobs |
//! | driver | itself: table abandoned, no live peer, no shutdown to answer | live peers |
//! | transport | whoever gives back the last of the table's shared part | the same as the slab's memory |
//!
//! # When counters wrap
//!
//! | counter | bits | then |
//! |---|---|---|
//! | generation | 60 | not detected; at 10⁹ attempts a second, after 36 years |
//! | leases of one stripe | 63 | not detected; needs 2⁶³ leases that are held or forgotten |
//! | version of a slot | 32 | an id kept over 2³² lives of one place names the peer that lives there then |
//! | references of a slot | pointer | not detected; on 32-bit targets 2³² forgotten handles are enough |
//! | job, transfer, region, timer numbers | 64 | not detected |
//!
//! # Not like this
//!
//! Each of these looks right and loses. Those with a mutant can be lost again by `ci/loom.sh --mutants`; "another structure" is
//! no edit of this one, so that no mutant can show it. What was measured is the bare structure, on Linux x86-64, not this crate.
//!
//! | variant | what it loses | seen in |
//! |---|---|---|
//! | no second look at the word | a late entrant uses the next generation as its own | `no-second-look` |
//! | flag and count in two words | an entry between "closed" and "nobody inside" | another structure |
//! | add first, undo if closed | the closed stripe reaches zero twice | `enter-adds-then-undoes` |
//! | leave on the leaver's own stripe | a stripe never drains, another underflows | `leave-on-the-threads-stripe` |
//! | one count for the whole peer, not striped | 3 to 7 times slower with two and more threads on one peer | measured |
//! | the count inside the slot's word | one stuck transfer keeps the peer from connecting again | another structure |
//! | the pointer taken out by an unconditional swap | the new connection removed by a late error of the old one | another structure |
//! | drained inferred from empty stripes | a late DRAINED closes the next generation in use | `drained-inferred-from-stripes` |
//! | `events` cleared by a store | bits set in between: 14,230 of 2,000,000 wake-ups lost | `clear-by-store`; measured |
//! | `events` cleared after the look | what was told in between | `clear-after-look` |
//! | no reference in the queue | a slot used again while it is queued | `no-reference-in-the-queue` |
//! | unpark through the slot, after the push | the slot may be gone | `unpark-through-the-slot` |
//! | election by a bare CAS, or leaving Connecting without the mutex | two native connects at once | does not compile here: both need the held mutex |
//! | a report that ignores Connecting | an attempt known to be dead becomes Ready | `report-ignores-connecting` |
//! | publish by a store | a report that won is undone | `publish-by-store` |
//! | `wanted` as a bit | a request lost, or a connect nobody asked for | `wanted-is-a-bit-cleared-after-the-attempt`, `wanted-is-a-bit-cleared-at-the-election` |
//! | notify waiters and let them read the state again | an outcome of another attempt than theirs | `look-then-join-in-two-sections` |
//! | users and transfers in one count | a user taken for a transfer: closed in use | `users-and-transfers-in-one-count` |
//! | shutdown as a flag and a walk | an insert behind the walk | `shutdown-is-a-flag-and-a-walk` |
//! | a native close that waits for an epoch | one stalled pin anywhere stopped 10,000 of 10,000 closes | measured |
//! | a pinned guard as a lease | one idle thread froze reclamation in the whole process | measured |
//! | crossbeam's default collector | other crates' destructors on whoever pins: 1,583 in 2,000,000 pins of a thread that retires nothing | measured |
//!
//! # What this does not show
//!
//! Models have two or three threads and few switches, and check the rules somebody thought of. They take arc-swap for granted and
//! see the standard library's mutexes only as order (`loom-tests/README.md`). Of the `SeqCst` pairs, the one on a
//! name and its word (`Shared::leaves`) has an argument and no model; the others have models and mutants.
