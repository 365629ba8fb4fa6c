/* SPDX-License-Identifier: Apache-2.0
 *
 * The protocol of docs/kv-transfer.md, small enough to be exhausted: two requests, two blocks on either side, letters that
 * are lost, doubled and out of order, a source that dies, stamp generations mod 3, and a mover whose writes may land at any
 * time until they are fenced. One block is one request's whole KV; a request may be fetched twice (another attempt).
 *
 * Checked: no block is used with other bytes than its request's; nobody writes into a block that was given back; at rest
 * every block is free. Broken variants, each of which must be caught:
 *   -DNO_GENERATION  the stamp's generation is not compared
 *   -DNO_CHECKSUM    the stamp's checksum is not compared
 *   -DNO_FENCE       a stopped fetch gives its block back without a fence
 *   -DNO_RELEASE_DEADLINE  a lease ends by its release alone
 */
#define REQUESTS 2
#define BLOCKS 2
#ifndef TENURES
#define TENURES 2      /* of all source blocks together; more than 3 would wrap a generation of mod 3 */
#endif
#ifndef FETCHES
#define FETCHES 2      /* of one request */
#endif
#define FREE 7
#define JUNK 5         /* bytes of nobody's KV */

#ifdef NO_GENERATION
#define GENERATION_PROVES(f) true
#else
#define GENERATION_PROVES(f) (m_generation[f] == d_generation[f])
#endif
#ifdef NO_CHECKSUM
#define SUM_PROVES(f) true
#else
#define SUM_PROVES(f) (m_sum[f] == m_bytes[f])
#endif

mtype = { ask, release };
chan to_source = [1] of { mtype, byte, byte };             /* request, serial */
chan to_dest = [2] of { byte, byte, byte, byte };   /* advance: request, serial, block, generation */

/* ---- source ---- */
mtype = { none, exported, leased };
mtype s_state[REQUESTS] = none;
byte s_block[REQUESTS];
byte s_owner[BLOCKS] = FREE;
byte bytes[BLOCKS] = JUNK;        /* whose KV the block holds */
byte stamp_generation[BLOCKS];    /* 0: no valid stamp */
byte stamp_sum[BLOCKS];           /* whose KV the stamp's checksum is of */
byte generation;
byte tenures = TENURES;
bool dead;
bool gone_due;                    /* the destination is yet to be told */

/* ---- destination ---- */
mtype = { idle, asking, moving, stopping };
mtype d_state[REQUESTS] = idle;
byte d_block[REQUESTS];
byte d_owner[BLOCKS] = FREE;
byte d_bytes[BLOCKS] = JUNK;
byte d_serial[REQUESTS];          /* of the fetch under way; grows */
byte d_generation[REQUESTS];      /* that was announced */

/* ---- mover: one move per request ---- */
mtype = { nothing, wished, seen, read };
mtype m_state[REQUESTS] = nothing;
byte m_from[REQUESTS];
byte m_into[REQUESTS];
byte m_serial[REQUESTS];
byte m_generation[REQUESTS];
byte m_sum[REQUESTS];
byte m_bytes[REQUESTS];
bool m_landed[REQUESTS];          /* the verdict: all bytes are here */

/* A letter arrives once, twice or never; an ask is doubled by being said again. */
inline to_s(what, r) {
  if
  :: skip
  :: nfull(to_source) -> to_source!what, r, d_serial[r]
  fi
}
inline to_d(r, serial, b, g) {
  if
  :: skip
  :: nfull(to_dest) -> to_dest!r, serial, b, g
  :: len(to_dest) == 0 -> to_dest!r, serial, b, g; to_dest!r, serial, b, g
  fi
}

inline end_lease(r) {
  stamp_generation[s_block[r]] = 0; stamp_sum[s_block[r]] = 0;
  s_owner[s_block[r]] = FREE;
  s_state[r] = none;
  s_block[r] = 0
}

/* Prefill puts a request's KV into the first free block. */
inline export(r) {
  if
  :: s_owner[0] == FREE -> s_block[r] = 0
  :: else -> s_block[r] = 1
  fi;
  tenures--; s_state[r] = exported; s_owner[s_block[r]] = r; bytes[s_block[r]] = r
}

active proctype Source() {
  byte r, serial, b;
end:
  do
  :: atomic { !dead && tenures > 0 && s_state[0] == none -> export(0) }
  :: atomic { !dead && tenures > 0 && s_state[1] == none -> export(1) }
  :: atomic { to_source??ask, r, serial ->
       if
       :: dead || s_state[r] == none   /* held or refused: it asks again or gives up */
       :: !dead && s_state[r] == exported ->
            s_state[r] = leased;
            generation = generation % 3 + 1;
            stamp_generation[s_block[r]] = generation;
            stamp_sum[s_block[r]] = bytes[s_block[r]];
            to_d(r, serial, s_block[r], stamp_generation[s_block[r]])
       :: !dead && s_state[r] == leased -> to_d(r, serial, s_block[r], stamp_generation[s_block[r]])
       fi; r = 0; serial = 0 }
  :: atomic { to_source??release, r, serial ->
       if
       :: s_state[r] == leased -> end_lease(r)
       :: else
       fi; r = 0; serial = 0 }
  /* a deadline, a cancel, a preemption: at any time */
#ifndef NO_RELEASE_DEADLINE
  :: atomic { !dead && s_state[0] != none -> end_lease(0) }
  :: atomic { !dead && s_state[1] != none -> end_lease(1) }
#endif
  /* it may die while somebody fetches */
  :: atomic { !dead && (d_state[0] != idle || d_state[1] != idle) -> dead = true; gone_due = true;
       do
       :: to_source?_, _, _
       :: empty(to_source) -> break
       od;
       for (r : 0 .. REQUESTS - 1) {
         if
         :: s_state[r] != none -> end_lease(r)
         :: else
         fi
       };
       for (b : 0 .. BLOCKS - 1) { bytes[b] = JUNK; stamp_sum[b] = 0 };
       r = 0; b = 0 }
  od
}

/* Stamps and bytes are read one after the other; in between anything may happen at the source. */
active [REQUESTS] proctype Mover() {
#define R (_pid - 1)
end:
  do
  :: atomic { m_state[R] == wished && !dead ->
       m_generation[R] = stamp_generation[m_from[R]]; m_sum[R] = stamp_sum[m_from[R]]; m_state[R] = seen }
  :: atomic { m_state[R] == seen && !dead -> m_bytes[R] = bytes[m_from[R]]; m_state[R] = read }
  :: atomic { m_state[R] == read ->
       assert(d_owner[m_into[R]] == R && d_serial[R] == m_serial[R]);   /* the delayed writer */
       d_bytes[m_into[R]] = m_bytes[R];
       m_state[R] = nothing; m_from[R] = 0; m_into[R] = 0; m_serial[R] = 0;
       m_landed[R] = (d_state[R] == moving) }
  od
}

/* Abandoned, failed, too slow, the source gone: the verdict of its move counts no more, but its bytes may land. */
inline stop(r) {
  d_state[r] = stopping;
  d_generation[r] = 0; m_generation[r] = 0; m_sum[r] = 0; m_landed[r] = false;
  if
  :: m_state[r] == nothing -> m_bytes[r] = 0
  :: else -> m_state[r] = read; m_from[r] = 0; m_bytes[r] = JUNK
  fi
}

inline finish(r) {
  d_owner[d_block[r]] = FREE;
  d_bytes[d_block[r]] = JUNK;
  d_state[r] = idle;
  d_block[r] = 0; d_generation[r] = 0;
  m_generation[r] = 0; m_sum[r] = 0; m_landed[r] = false;
  if
  :: m_state[r] == nothing -> m_bytes[r] = 0
  :: else
  fi;
  to_s(release, r)
}

active [REQUESTS] proctype Fetch() {
#define F (_pid - 1 - REQUESTS)
  byte b, g, serial;
end:
  do
  :: atomic { d_state[F] == idle && d_serial[F] < FETCHES && m_state[F] == nothing ->
       if
       :: d_owner[0] == FREE -> d_block[F] = 0
       :: else -> d_block[F] = 1
       fi;
       d_owner[d_block[F]] = F; d_serial[F]++; d_state[F] = asking; to_s(ask, F) }
  :: atomic { d_state[F] == asking && !dead && empty(to_source) -> to_s(ask, F) }
  :: atomic { to_dest??eval(F), serial, b, g ->
       if
       :: d_state[F] == asking && serial == d_serial[F] ->
            d_state[F] = moving; d_generation[F] = g;
            m_state[F] = wished; m_from[F] = b; m_into[F] = d_block[F]; m_serial[F] = serial
       :: else   /* late */
       fi; b = 0; g = 0; serial = 0 }
  /* abandoned, or the source is silent: at any time */
  :: atomic { d_state[F] == asking -> finish(F) }
  :: atomic { d_state[F] == moving && !m_landed[F] -> stop(F) }
  :: atomic { d_state[F] == moving && m_landed[F] ->
       if
       :: GENERATION_PROVES(F) && SUM_PROVES(F) && m_generation[F] != 0 ->
            assert(d_bytes[d_block[F]] == F);   /* the right KV */
            finish(F)
       :: else -> finish(F)
       fi }
  /* quarantine ends by proof that nothing lands: the move has ended ... */
  :: atomic { d_state[F] == stopping && m_state[F] == nothing -> finish(F) }
#ifdef NO_FENCE
  :: atomic { d_state[F] == stopping -> finish(F) }
#else
  /* ... or a fence, which ends all moves from that peer */
  :: atomic { d_state[F] == stopping && m_state[F] != nothing ->
       for (b : 0 .. REQUESTS - 1) {
         if
         :: m_state[b] != nothing ->
              if
              :: d_state[b] == moving -> stop(b)   /* another's fence: it is over too */
              :: else
              fi;
              m_state[b] = nothing; m_bytes[b] = 0; m_from[b] = 0; m_into[b] = 0; m_serial[b] = 0
         :: else
         fi
       };
       b = 0;
       finish(F) }
#endif
  od
}

/* PeerGone, and rest. */
active proctype Watch() {
  byte r;
  do
  :: atomic { gone_due -> gone_due = false;
       for (r : 0 .. REQUESTS - 1) {
         if
         :: d_state[r] == moving && !m_landed[r] -> stop(r)
         :: else
         fi
       };
       r = 0 }
  :: timeout -> break
  od;
  assert(d_owner[0] == FREE && d_owner[1] == FREE);
  assert(s_owner[0] == FREE && s_owner[1] == FREE);
  assert(m_state[0] == nothing && m_state[1] == nothing)
}
