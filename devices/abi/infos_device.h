/* SPDX-License-Identifier: Apache-2.0
 *
 * The infos device ABI: what a backend (CPU, GPU, ASIC) gives to the host. A C header that a vendor
 * can use alone.
 *
 * Rules
 *  - A plugin is a shared object that exports one symbol, `infos_plugin_query`.
 *  - Every struct begins with `struct_size`, set by whoever fills it; structs only grow at the end.
 * A reader treats bytes beyond the writer's `struct_size` as zero, and zero always means "absent"
 * or "default". For a struct that the plugin fills (`out`), the host sets `struct_size` to its room
 * before the call; the plugin writes no byte beyond it and sets `struct_size` to what it filled.
 *  - Host and plugin work together at ABI version N and N-1. A feature bit that the other side
 * requires and does not know is refused with a reason.
 *  - No C++ types, no exceptions and no ownership across the line except through the create/destroy
 * pairs below.
 *  - Every function returns an infos_code and fills `error` (if not null) when it is not INFOS_OK.
 *  - A device is closed last: after its jobs, artifacts, programs and KV pools are gone, which may
 * go in any order (a program does not need its artifact any more).
 *  - Functions of one device are called from one thread at a time, `cancel` excepted:
 * any thread, any time.
 */
#ifndef INFOS_DEVICE_H
#define INFOS_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define INFOS_ABI_VERSION 1u
#define INFOS_ABI_VERSION_MIN 1u

typedef enum infos_code {
  INFOS_OK = 0,
  INFOS_INVALID = 1,     /* the caller broke the contract; the message says how */
  INFOS_UNSUPPORTED = 2, /* understood, not available on this device */
  INFOS_EXHAUSTED = 3,   /* memory or another bound */
  INFOS_FAILED = 4,      /* the device failed; health() says more */
  INFOS_DEADLINE = 5,
  INFOS_CANCELLED = 6,
  INFOS_CORRUPT = 7 /* an artifact or import that contradicts itself */
} infos_code;

typedef struct infos_error {
  char message[256]; /* one sentence, NUL-terminated */
} infos_error;

/* ---- data types ---- */

/* Block formats are those of GGUF, byte for byte: Q8_0 and Q4_0 hold 32 weights a block (34 and 18
 * bytes), Q4_K and Q6_K hold 256 (144 and 210 bytes). A row of a matrix is a whole number of
 * blocks. */
typedef enum infos_dtype {
  INFOS_DTYPE_NONE = 0,
  INFOS_F32 = 1,
  INFOS_F16 = 2,
  INFOS_BF16 = 3,
  INFOS_I8 = 4,
  INFOS_I32 = 5,
  INFOS_F64 = 6,
  INFOS_Q8_0 = 16,
  INFOS_Q4_0 = 17,
  INFOS_Q4_K = 18,
  INFOS_Q6_K = 19
} infos_dtype;

/* ---- phase graph ---- */

/* Symbolic dimensions. */
#define INFOS_DIM_TOKENS (-1) /* rows of the batch: all tokens of this step */
#define INFOS_DIM_ROWS (-2)   /* rows selected for logits */

typedef enum infos_role {
  INFOS_ROLE_NONE = 0,
  INFOS_ROLE_ACTIVATION = 1, /* lives within one execute */
  INFOS_ROLE_WEIGHT = 2,     /* bound at load; one per layer when `per_layer` */
  INFOS_ROLE_CONSTANT = 3    /* like a weight, f32, made by the host (RoPE frequencies) */
} infos_role;

typedef struct infos_tensor {
  uint32_t struct_size;
  uint32_t role;      /* infos_role */
  uint32_t dtype;     /* infos_dtype of activations; for weights NONE: the bound weight says */
  uint32_t per_layer; /* 1: another weight for each turn of the rolled layers */
  uint32_t rank;
  uint32_t reserved;
  int64_t dims[4]; /* row-major, outermost first; weights of LINEAR are [out, in], of experts
                      [experts, out, in] */
  char name[64];   /* GGUF-style, `%d` where the layer goes: "blk.%d.attn_q.weight" */
} infos_tensor;

typedef enum infos_op_kind {
  INFOS_OP_NONE = 0,
  INFOS_OP_EMBED = 1, /* in: table[vocab, d]                 out: x[T, d] f32; row = table[token] */
  INFOS_OP_RMS_NORM =
      2, /* in: x[T, n], w[m]                   out: y[T, n]; m divides n: norm over each m group */
  INFOS_OP_LINEAR = 3, /* in: x[T, k], w[n, k], (bias[n])     out: y[T, n] = x w^T + bias */
  INFOS_OP_ROPE = 4,   /* in: x[T, heads*head_dim], inv_freq[rotary_dim/2]   out: y, same shape   */
  INFOS_OP_KV_APPEND = 5, /* in: k[T, kv_heads*head_dim], v      out: none; writes the KV pool at
                             (layer, position) */
  INFOS_OP_ATTENTION =
      6, /* in: q[T, heads*head_dim]            out: o, same shape; reads the KV pool            */
  INFOS_OP_ADD = 7,      /* in: a, b                            out: a + b      */
  INFOS_OP_SILU_MUL = 8, /* in: gate[T, n], up[T, n]            out: silu(gate) * up */
  INFOS_OP_MOE_FFN =
      9, /* in: x[T, d], router[e, d], gate[e, f, d], up[e, f, d], down[e, d, f]   out: y[T, d]:
            softmax over router logits, top_k, weights renormalised when `renormalise`           */
  INFOS_OP_SELECT_ROWS =
      10, /* in: x[T, d]                        out: y[R, d], rows named by the batch            */
  INFOS_OP_ALL_REDUCE =
      11 /* in: x[T, n]                         out: y[T, n], another tensor: the sum of x over all
            ranks of the device's infos_group, added in the order of ranks, the same bits on all */
} infos_op_kind;

typedef enum infos_mask {
  INFOS_MASK_NONE = 0,
  INFOS_MASK_CAUSAL = 1,
  INFOS_MASK_WINDOW = 2
} infos_mask;

typedef enum infos_rope_style {
  INFOS_ROPE_NONE = 0,
  INFOS_ROPE_HALVES = 1,  /* pairs (i, i + rotary_dim/2): Hugging Face, GPT-NeoX */
  INFOS_ROPE_ADJACENT = 2 /* pairs (2i, 2i + 1): GGUF's Llama tensors */
} infos_rope_style;

#define INFOS_OP_INPUTS_MAX 8

typedef struct infos_op {
  uint32_t struct_size;
  uint32_t kind; /* infos_op_kind */
  uint32_t n_inputs;
  uint32_t inputs[INFOS_OP_INPUTS_MAX]; /* indices into infos_graph.tensors */
  uint32_t output;                      /* likewise; UINT32_MAX: none */
  uint32_t accumulator;                 /* infos_dtype in which sums are kept: F32 or F64 */
  uint32_t mask;                        /* infos_mask, ATTENTION */
  uint32_t window;                      /* tokens, MASK_WINDOW: position p sees (p - window, p] */
  uint32_t heads, kv_heads, head_dim;   /* ROPE (heads of x), KV_APPEND, ATTENTION */
  uint32_t rotary_dim, rope_style;      /* ROPE */
  uint32_t experts, top_k, renormalise; /* MOE_FFN */
  float epsilon;                        /* RMS_NORM */
  float scale;                          /* ATTENTION: factor on q.k */
} infos_op;

/* ops[0, layer_begin) run once, ops[layer_begin, layer_end) once per layer, the rest once. Tensors
 * written in one turn and read in the next (the residual stream) keep their index. The last op's
 * output is logits[R, vocab] f32. */
typedef struct infos_graph {
  uint32_t struct_size;
  uint32_t n_tensors;
  const infos_tensor* tensors;
  uint32_t n_ops;
  uint32_t layer_begin, layer_end, n_layers;
  const infos_op* ops;
} infos_graph;

/* ---- devices ---- */

typedef enum infos_device_class {
  INFOS_CLASS_NONE = 0,
  INFOS_CLASS_CPU = 1,
  INFOS_CLASS_GPU = 2,
  INFOS_CLASS_ASIC = 3
} infos_device_class;

/* The capability record. */
typedef struct infos_device_info {
  uint32_t struct_size;
  uint32_t device_class; /* infos_device_class */
  char name[64];         /* "Intel Xeon (AVX-512 VNNI)" */
  char compat[64]; /* artifacts made for another string may not load: "cpu-x86-64-avx512vnni" */
  uint64_t memory_bytes;      /* total memory for weights and KV */
  uint64_t kv_capacity_bytes; /* 0: the device cannot hold KV caches */
  double peak_f32_flops;      /* 0: unknown */
  double peak_int8_ops;
  double memory_bytes_per_second;
  double watts;
  uint32_t cores;
  uint32_t phases;          /* bit set: 1 prefill, 2 decode, 4 attention, 8 ffn */
  uint64_t op_mask;         /* bit i: op kind i is supported */
  uint64_t dtype_mask;      /* bit i: weight dtype i is supported */
  uint32_t batch_invariant; /* 1: a row's result does not depend on the other rows of its batch */
  uint32_t static_shapes;   /* 1: compiles for fixed shapes only */
} infos_device_info;

/* Ranks: devices that compute one model together, each with its part of the weights and of the KV
 * heads; ALL_REDUCE joins their programs. The host compiles, loads and executes all ranks at once,
 * each on a thread of its own, executes the same batch on all, and begins nothing new before all
 * have returned. When one rank fails it cancels the others. */
typedef struct infos_group {
  uint32_t struct_size;
  uint32_t rank, ranks;
  void* context;
  /* Waits until every rank has called it as often as this one, then gives what each passed:
   * all[ranks]. What a rank wrote before its call is seen by the others after theirs. All ranks
   * live in one process, so an address may be passed. Not INFOS_OK when a rank has failed: give up
   * the load or execute with that code. A backend may reduce with this alone, or exchange once what
   * its own collective library needs; the wait of such a library must end on `cancel`. */
  infos_code (*exchange)(void* context, uint64_t mine, uint64_t* all);
} infos_group;

/* Zero means "choose". */
typedef struct infos_device_config {
  uint32_t struct_size;
  uint32_t index;   /* which of the enumerated devices */
  uint32_t threads; /* CPU: how many threads compute */
  uint32_t n_cores; /* CPU: pin thread i to cores[i % n_cores]; 0: do not pin */
  const uint32_t* cores;
  uint64_t memory_bytes; /* bound on weights + KV + scratch */
  const char* options;   /* backend-specific "key=value,key=value", e.g. "isa=avx2"; may be null */
  const infos_group* group; /* valid until the device is closed; null: no rank of a group, programs
                               with ALL_REDUCE are refused at load */
} infos_device_config;

typedef struct infos_health {
  uint32_t struct_size;
  uint32_t healthy; /* 1 or 0 */
  uint64_t memory_used_bytes;
  char message[192];
} infos_health;

typedef struct infos_device infos_device;     /* an opened device */
typedef struct infos_job infos_job;           /* a running compilation */
typedef struct infos_artifact infos_artifact; /* a compiled graph without weights */
typedef struct infos_program infos_program; /* an artifact loaded with weights, ready to execute */
typedef struct infos_kv infos_kv;           /* a paged KV pool */

/* ---- compile and load ---- */

/* The shapes that an artifact must serve. */
typedef struct infos_bucket {
  uint32_t struct_size;
  uint32_t max_tokens; /* tokens in one execute */
  uint32_t max_sequences;
  uint32_t max_context; /* tokens of one sequence */
} infos_bucket;

typedef enum infos_job_state {
  INFOS_JOB_NONE = 0,
  INFOS_JOB_RUNNING = 1,
  INFOS_JOB_DONE = 2,
  INFOS_JOB_FAILED = 3
} infos_job_state;

typedef enum infos_compat {
  INFOS_COMPAT_NONE = 0,
  INFOS_COMPAT_OPTIMAL = 1,
  INFOS_COMPAT_USABLE = 2,
  INFOS_COMPAT_RECOMPILE_PREFERRED = 3,
  INFOS_COMPAT_INCOMPATIBLE = 4
} infos_compat;

/* Bytes that somebody else owns. Weights stay valid only until load returns, or, when the plugin
 * sets `keeps_weights` in its table, until the program is unloaded. Weights of rank 1 (norms,
 * biases) and constants are always f32; the others have any dtype of the device's dtype_mask. */
typedef struct infos_weight {
  uint32_t struct_size;
  uint32_t dtype;
  const void* data;
  uint64_t bytes;
} infos_weight;

/* Gives the weight of tensor index `tensor` at `layer` (0 when not per layer). */
typedef infos_code (*infos_weight_source)(void* context, uint32_t tensor, uint32_t layer,
                                          infos_weight* out);

/* ---- KV pool ---- */

typedef struct infos_kv_config {
  uint32_t struct_size;
  uint32_t dtype; /* F32, F16 or BF16 */
  uint32_t layers, kv_heads, head_dim;
  uint32_t block_tokens;
  uint32_t n_blocks;
  /* Where the pool's memory comes from; null: the plugin's own. The host gives zeroed memory,
   * aligned to a page, or null when there is none, and takes it back when the pool is destroyed. It
   * lets workers of one host read each other's pools. Devices with memory of their own ignore it.
   * Both functions are given, or none.
   */
  void* (*allocate)(void* context, uint64_t bytes);
  void (*release)(void* context, void* memory, uint64_t bytes);
  void* allocate_context;
} infos_kv_config;

/* Where element (block, layer, head, token, dim) of K lies: base + block*s_block + layer*s_layer +
 * head*s_head + token*s_token + dim*element bytes; V lies `v_offset` bytes further. */
typedef struct infos_kv_layout {
  uint32_t struct_size;
  uint32_t dtype;
  void* base; /* host-addressable base, null when there is none */
  uint64_t s_block, s_layer, s_head, s_token;
  uint64_t v_offset;
  uint64_t bytes;
} infos_kv_layout;

/* ---- execute ---- */

/* One step over a ragged batch. Token rows are grouped by sequence; a sequence's rows have
 * consecutive positions, and its KV for positions before its first row is already in its blocks.
 * Position p lies in block_table[p / block_tokens]. */
typedef struct infos_batch {
  uint32_t struct_size;
  uint32_t n_tokens;
  const int32_t* tokens;    /* [n_tokens] */
  const int32_t* positions; /* [n_tokens] */
  uint32_t n_sequences;
  const uint32_t*
      row_begin; /* [n_sequences + 1]: rows of sequence i are [row_begin[i], row_begin[i+1]) */
  const uint32_t* block_table; /* all block tables, one after the other */
  const uint32_t* table_begin; /* [n_sequences + 1] into block_table */
  uint32_t n_logit_rows;
  const uint32_t* logit_rows; /* [n_logit_rows]: token rows whose logits are wanted */
  float* logits;              /* out: [n_logit_rows, vocab], host memory */
  uint64_t deadline_ns;       /* CLOCK_MONOTONIC; 0: none */
  /* Called, when not null, each time the KV of all rows of a layer has been written to the pool and
   * is visible to this host, in the order of layers, from any one thread. Must return soon. With a
   * plugin that does not know this field, all layers count as written when execute returns. */
  void (*layer_done)(void* context, uint32_t layer);
  void* layer_context;
  /* Floats from one row of `logits` to the next; 0: vocab, the width of the program's logits.
   * Honoured by every backend that has ALL_REDUCE: each rank gives its part of the vocabulary. */
  uint64_t logits_stride;
} infos_batch;

/* ---- tables ---- */

typedef struct infos_host_api {
  uint32_t struct_size;
  uint32_t abi_version;
  void* context;
  void (*log)(void* context, int level /* 0 debug .. 3 error */, const char* message);
} infos_host_api;

typedef struct infos_plugin_api {
  uint32_t struct_size;
  uint32_t abi_version;
  uint64_t required_features; /* bits the host must know; v1 knows none */
  const char* name;           /* "cpu" */
  const char* build;          /* version and build of the plugin; part of artifact keys */

  /* devices */
  infos_code (*enumerate)(uint32_t* count, infos_error* error);
  infos_code (*describe)(uint32_t index, infos_device_info* out, infos_error* error);
  infos_code (*open)(const infos_device_config* config, infos_device** out, infos_error* error);
  void (*close)(infos_device* device);
  infos_code (*health)(infos_device* device, infos_health* out, infos_error* error);

  /* compile: asynchronous and anytime; poll gives progress in 0..1 */
  infos_code (*compile_begin)(infos_device* device, const infos_graph* graph,
                              const infos_bucket* bucket, const char* options, infos_job** out,
                              infos_error* error);
  infos_code (*compile_poll)(infos_job* job, uint32_t* state /* infos_job_state */,
                             double* progress, infos_error* error);
  void (*compile_cancel)(
      infos_job* job); /* take() then gives the best so far, or INFOS_CANCELLED */
  infos_code (*compile_take)(infos_job* job, infos_artifact** out, infos_error* error); /* frees the
     job, whatever it returns, unless a pointer is null */

  /* artifacts */
  /* serialize with a null buffer gives the size alone; with too little room INFOS_EXHAUSTED and the
   * size */
  infos_code (*artifact_serialize)(const infos_artifact* artifact, void* buffer,
                                   uint64_t* bytes /* in: room, out: size */, infos_error* error);
  infos_code (*artifact_deserialize)(infos_device* device, const void* buffer, uint64_t bytes,
                                     infos_artifact** out, infos_error* error);
  infos_code (*artifact_compat)(infos_device* device, const void* buffer, uint64_t bytes,
                                uint32_t* compat, infos_error* error);
  void (*artifact_destroy)(infos_artifact* artifact);

  /* programs */
  infos_code (*load)(infos_device* device, const infos_artifact* artifact,
                     infos_weight_source source, void* context, infos_program** out,
                     infos_error* error);
  void (*unload)(infos_program* program);
  infos_code (*execute)(infos_program* program, infos_kv* kv, const infos_batch* batch,
                        infos_error* error);
  void (*cancel)(infos_device* device); /* the execute that runs now returns INFOS_CANCELLED soon */

  /* KV pools */
  infos_code (*kv_create)(infos_device* device, const infos_kv_config* config, infos_kv** out,
                          infos_error* error);
  infos_code (*kv_layout)(infos_kv* kv, infos_kv_layout* out, infos_error* error);
  void (*kv_destroy)(infos_kv* kv);

  uint32_t keeps_weights; /* 1: the bytes given at load are used in place until unload */
  uint32_t reserved;
  /* Later groups (fences, pinned and exported memory, layer ranges, attention-FFN half layers) are
   * appended here. */
} infos_plugin_api;

/* Fills `out`. The plugin may keep `host` for its life. INFOS_UNSUPPORTED with a reason when the
 * versions do not meet. */
infos_code infos_plugin_query(uint32_t host_abi, const infos_host_api* host, infos_plugin_api* out,
                              infos_error* error);

#ifdef __cplusplus
}
#endif
#endif
