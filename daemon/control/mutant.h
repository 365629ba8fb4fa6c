// SPDX-License-Identifier: Apache-2.0
// Planted bugs of the control code, to show that the simulator and the tests would find them. A
// normal build has none: `planted()` is constant false. A build with INFOS_MUTANTS defined (the
// library infos_control_mutants) asks `active_mutant`, which a runner sets once, before any core
// exists.
#pragma once

#include <cstdint>

namespace infos {

/// Numbers are never reused. Names say what is wrong.
enum class Mutant : std::uint32_t {
  none = 0,
  // TransferCore
  stamp_generation_unchecked = 1,  ///< bytes of another tenure of the block count as proven
  stamp_bytes_unchecked = 2,       ///< bytes that do not match their checksum count as proven
  lease_freed_early = 3,           ///< an export ends while its lease is being read
  quarantine_by_timer = 4,         ///< a timed-out move's blocks are given back without a fence
  fence_not_awaited = 5,           ///< the fetch ends when the fence is asked for, not answered
  fetch_done_twice = 6,            ///< a second FetchDone
  export_done_twice = 7,           ///< a second ExportDone
  superseded_lease_kept = 8,       ///< a newer ask of the same request leaves the old lease open
  generation_not_renewed = 9,      ///< a block's second tenure has the stamp of its first
  sender_unchecked = 10,           ///< whoever asks gets the lease
  abandon_forgets_moves = 11,      ///< an abandoned fetch does not wait for its moves
  ready_too_early = 12,            ///< the clock counts a block before its last token
  release_lost = 13,               ///< no deadline on a lease whose release got lost
  identity_unchecked = 14,         ///< peers with another model or layout are served
  gap_counts_as_fetched = 15,      ///< proven blocks behind a hole are counted
  peer_gone_without_fence = 16,    ///< blocks are given back at PeerGone
  retry_before_fence = 17,         ///< a failed move is tried again while the first may land
  // WorkerCore
  fetch_blocks_freed_early = 101,   ///< an abandoned fetch's blocks are free before its answer
  export_blocks_freed_early = 102,  ///< exported blocks are free before the export has ended
  fetch_used_unproven = 103,        ///< all that was asked for counts as fetched
  fetch_range_off_by_block = 104,   ///< a block too few is fetched
  published_before_computed = 105,  ///< blocks are findable while their step runs
  exported_before_computed = 106,   ///< rows are told to the reader before they exist
  fetch_orphan_leaked = 107,        ///< the answer to an abandoned fetch frees nothing
  computes_while_fetching = 108,    ///< a sequence is scheduled while its fetch is under way
  stop_token_delivered = 110,
  // GatewayCore
  repeated_token_delivered = 121,   ///< what both sides of a split request draw is delivered twice
  emitted_counted_as_prompt = 123,  ///< a retry begins to count its answer anew
  double_completion = 124,
  half_taken_for_whole = 125,  ///< the prefill side's end ends the answer
  token_gap_accepted = 126,
  orphans_forgotten = 127,  ///< the requests of a worker that is gone wait for it
  draws_prompt_seed = 130,  ///< a retry draws with another seed
  // AgentCore
  generation_reused = 142,  ///< a new process has the generation of the last one
};

#ifdef INFOS_MUTANTS
extern Mutant active_mutant;
inline bool planted(Mutant mutant) { return active_mutant == mutant; }
#else
constexpr bool planted(Mutant) { return false; }
#endif

}  // namespace infos
