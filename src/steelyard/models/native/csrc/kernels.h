// The kernels' interface: plain pointers, no torch, so that both halves compile side by side.
#pragma once

#include <cstdint>

namespace steelyard {

constexpr int kGroup = 32;     // values that share a scale, in activations and in packed weights
constexpr int kTile = 32;      // outputs per tile of a packed matrix
constexpr int kSubBlock = 16;  // tokens per sub-block of a KV page

extern const bool fast_dot_bf16;  // the compiler targets a bf16 dot product
extern const bool fast_dot_int8;  // … and an eight-bit one

void set_threads(int count);  // of the pool, the caller included
int threads();

// ---- packed matrices (layouts in linear.h) ------------------------------------------------------

enum class Format { bf16, int8, int4 };

struct Matrix {
  Format format;
  int64_t outputs;
  int64_t width;
  const uint8_t* data;
  const float* bias;  // null: none

  bool eight_bit_rows() const { return format != Format::bf16; }
  int64_t tiles() const { return (outputs + kTile - 1) / kTile; }
  int64_t tile_bytes() const {
    switch (format) {
      case Format::bf16: return width * kTile * 2;
      case Format::int8: return width / kGroup * kInt8GroupBytes;
      default: return width / kGroup * kInt4GroupBytes;
    }
  }
  static constexpr int64_t kInt8GroupBytes = kTile * 2 + kGroup * kTile;
  static constexpr int64_t kInt4GroupBytes = kTile * 4 + kGroup * kTile / 2;
};

enum class Finish {
  store,  // out [rows, outputs] = result
  add,    // out [rows, outputs] += result
  gate,   // out [rows, outputs / 2] = silu(gate) * up, from tiles of 16 gates and their 16 ups
};

// x [rows, width] in float, RMS-normalised with `norm` [width] first unless it is null.
void linear(const Matrix& m, Finish finish, const float* x, int64_t rows, const float* norm,
            float eps, float* out);

// values [outputs, width] as bf16 / int8 / nibbles in bytes; scale, minimum [outputs, width / 32]
// as f16. `out` is zeroed; outputs beyond the last whole tile stay zero.
void pack_matrix(const Matrix& m, const void* values, const uint16_t* scale,
                 const uint16_t* minimum, uint8_t* out);

// One row of the matrix, `width` floats.
void unpack_row(const Matrix& m, int64_t output, float* row);

// ---- attention over KV pages (layout in pages.h) ---------------------------------------------------

struct HeadShape {
  int64_t query_heads;
  int64_t kv_heads;
  int64_t head_size;     // 64 or 128
  int64_t block_tokens;  // a multiple of kSubBlock

  int64_t group() const { return query_heads / kv_heads; }
  int64_t value_offset() const { return block_tokens * head_size; }  // from a head's keys
  int64_t head_elements() const { return 2 * block_tokens * head_size; }
  int64_t block_elements() const { return kv_heads * head_elements(); }
};

// A step's flat token batch.
struct Batch {
  int64_t tokens;
  int64_t sequences;
  const int32_t* positions;  // [tokens]
  const int32_t* slots;      // [tokens]: block * block_tokens + offset
  const int32_t* starts;     // [sequences + 1]: first token of each sequence
  const int32_t* contexts;   // [sequences]: tokens in the cache once this step's are written
  const int32_t* rows;       // [sequences]: row of the block table
  const int32_t* table;      // [max rows, table_stride]: block ids
  int64_t table_stride;
};

// Rotation tables [positions, head_size / 2] and optional RMS weights [head_size] for q and k.
struct Rotary {
  const float* cosine;
  const float* sine;
  const float* query_norm;  // null: none
  const float* key_norm;
  float norm_eps;
};

// qkv [tokens, (query_heads + 2 * kv_heads) * head_size] in float, rotated in place.
// Queries go to `queries` [tokens, query_heads, head_size], keys and values to `pages`; both are
// float or both bfloat16.
void rotate_and_store(const HeadShape& shape, const Batch& batch, const Rotary& rotary,
                      bool float_pages, float* qkv, void* queries, void* pages);

// Causal attention; `window` newest keys, 0 for all. out [tokens, query_heads, head_size] and
// lse [tokens, query_heads] (or null) in float.
void attention(const HeadShape& shape, const Batch& batch, bool float_pages, const void* queries,
               const void* pages, float scale, int64_t window, float* out, float* lse);

}  // namespace steelyard
