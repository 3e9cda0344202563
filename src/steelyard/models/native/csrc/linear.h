// Matrix products of a few (or many) rows with packed weights, bound by memory for one row and by
// the dot-product units for many.
//
// Weights are cut into tiles of 32 outputs; a tile is read front to back exactly once per block of
// rows, so one row streams the matrix at memory speed and many rows find the tile in cache.
//
//   bf16   tile: [width / 2][32 outputs][2 values]
//   int8   tile: [width / 32] x { f16 scale[32] | u8 value[8 steps][32 outputs][4 values] }
//          value = u8 - 128, weight = scale * value (the layout of precision Q8_0)
//   int4   tile: [width / 32] x { f16 scale[32] | f16 minimum[32] | u8 [4][32 outputs][4] }
//          low nibbles: steps 0..3, high nibbles: steps 4..7; weight = scale * nibble + minimum (Q4_1)
//
// A row's sum runs over the width in the same order whatever the number of rows, so its result does
// not depend on the batch it is computed in.
#pragma once

#include "pool.h"
#include "rows.h"

#include <algorithm>

namespace steelyard {

// ---- one tile times R rows --------------------------------------------------------------------
// `out` is [R][kTile].

inline i32x16 broadcast_word(const void* p) {
  int32_t word;
  std::memcpy(&word, p, sizeof word);
  return broadcast(word);
}

struct TileBf16 {
  static constexpr int kMaxRows = 12;

  template <int R>
  static void multiply(const Matrix& m, const uint8_t* tile, const Rows& rows, int64_t first,
                       float* out) {
    f32x16 acc[R][2] = {};
    const uint16_t* a = rows.bf16.data() + first * rows.width;
    for (int64_t k = 0; k < m.width; k += 2, tile += kTile * 4) {
      const i32x16 w0 = load(reinterpret_cast<const int32_t*>(tile));
      const i32x16 w1 = load(reinterpret_cast<const int32_t*>(tile) + kLanes);
#pragma GCC unroll 12
      for (int r = 0; r < R; ++r) {
        const i32x16 pair = broadcast_word(a + r * rows.width + k);
        acc[r][0] = dot2_bf16(acc[r][0], pair, w0);
        acc[r][1] = dot2_bf16(acc[r][1], pair, w1);
      }
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      store(out + r * kTile, acc[r][0]);
      store(out + r * kTile + kLanes, acc[r][1]);
    }
  }
};

struct TileInt8 {
  static constexpr int kMaxRows = 6;

  template <int R>
  static void multiply(const Matrix& m, const uint8_t* tile, const Rows& rows, int64_t first,
                       float* out) {
    f32x16 acc[R][2] = {};
    const int64_t groups = m.width / kGroup;
    for (int64_t g = 0; g < groups; ++g, tile += Matrix::kInt8GroupBytes) {
      i32x16 sum[R][2];
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r)
        sum[r][0] = sum[r][1] = broadcast(rows.offset[(first + r) * groups + g]);
      const int32_t* values = reinterpret_cast<const int32_t*>(tile + kTile * 2);
#pragma GCC unroll 8
      for (int step = 0; step < 8; ++step) {
        const i32x16 w0 = load(values + step * kTile);
        const i32x16 w1 = load(values + step * kTile + kLanes);
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
          const i32x16 a =
              broadcast_word(rows.int8.data() + (first + r) * rows.width + g * kGroup + step * 4);
          sum[r][0] = dot4_int8(sum[r][0], w0, a);
          sum[r][1] = dot4_int8(sum[r][1], w1, a);
        }
      }
      const f32x16 scale0 = load_f16(reinterpret_cast<const uint16_t*>(tile));
      const f32x16 scale1 = load_f16(reinterpret_cast<const uint16_t*>(tile) + kLanes);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const f32x16 s = broadcast(rows.scale[(first + r) * groups + g]);
        acc[r][0] = fmadd(to_float(sum[r][0]), scale0 * s, acc[r][0]);
        acc[r][1] = fmadd(to_float(sum[r][1]), scale1 * s, acc[r][1]);
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      store(out + r * kTile, acc[r][0]);
      store(out + r * kTile + kLanes, acc[r][1]);
    }
  }
};

struct TileInt4 {
  static constexpr int kMaxRows = 6;

  template <int R>
  static void multiply(const Matrix& m, const uint8_t* tile, const Rows& rows, int64_t first,
                       float* out) {
    f32x16 acc[R][2] = {};
    const int64_t groups = m.width / kGroup;
    const i32x16 low = broadcast(0x0f0f0f0f);
    for (int64_t g = 0; g < groups; ++g, tile += Matrix::kInt4GroupBytes) {
      i32x16 sum[R][2] = {};
      const int32_t* nibbles = reinterpret_cast<const int32_t*>(tile + kTile * 4);
#pragma GCC unroll 4
      for (int step = 0; step < 4; ++step) {
        const i32x16 v0 = load(nibbles + step * kTile);
        const i32x16 v1 = load(nibbles + step * kTile + kLanes);
        const i32x16 near0 = v0 & low, near1 = v1 & low;
        const i32x16 far0 = (v0 >> 4) & low, far1 = (v1 >> 4) & low;
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
          const int8_t* row = rows.int8.data() + (first + r) * rows.width + g * kGroup + step * 4;
          const i32x16 a = broadcast_word(row);
          const i32x16 b = broadcast_word(row + kGroup / 2);
          sum[r][0] = dot4_int8(sum[r][0], near0, a);
          sum[r][1] = dot4_int8(sum[r][1], near1, a);
          sum[r][0] = dot4_int8(sum[r][0], far0, b);
          sum[r][1] = dot4_int8(sum[r][1], far1, b);
        }
      }
      const uint16_t* constants = reinterpret_cast<const uint16_t*>(tile);
      const f32x16 scale0 = load_f16(constants), scale1 = load_f16(constants + kLanes);
      const f32x16 min0 = load_f16(constants + kTile), min1 = load_f16(constants + kTile + kLanes);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const f32x16 s = broadcast(rows.scale[(first + r) * groups + g]);
        const f32x16 t = broadcast(rows.scaled_sum[(first + r) * groups + g]);
        acc[r][0] = fmadd(to_float(sum[r][0]), scale0 * s, fmadd(min0, t, acc[r][0]));
        acc[r][1] = fmadd(to_float(sum[r][1]), scale1 * s, fmadd(min1, t, acc[r][1]));
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      store(out + r * kTile, acc[r][0]);
      store(out + r * kTile + kLanes, acc[r][1]);
    }
  }
};

// ---- what happens to a tile of results ----------------------------------------------------------
// Called with the first row, the number of rows, the first output and results [rows][kTile].

struct StoreTile {
  float* out;  // [rows, outputs]

  void operator()(const Matrix& m, int64_t row, int rows, int64_t output, float* tile) const {
    const int64_t columns = std::min<int64_t>(kTile, m.outputs - output);
    for (int r = 0; r < rows; ++r) {
      float* to = out + (row + r) * m.outputs + output;
      for (int64_t c = 0; c < columns; ++c)
        to[c] = tile[r * kTile + c] + (m.bias ? m.bias[output + c] : 0.0f);
    }
  }
};

struct AddTile {
  float* out;  // [rows, outputs], added to

  void operator()(const Matrix& m, int64_t row, int rows, int64_t output, float* tile) const {
    const int64_t columns = std::min<int64_t>(kTile, m.outputs - output);
    for (int r = 0; r < rows; ++r) {
      float* to = out + (row + r) * m.outputs + output;
      for (int64_t c = 0; c < columns; ++c)
        to[c] += tile[r * kTile + c] + (m.bias ? m.bias[output + c] : 0.0f);
    }
  }
};

// Tiles hold 16 gates, then the 16 matching ups; the result is silu(gate) * up.
struct GateTile {
  float* out;  // [rows, outputs / 2]

  void operator()(const Matrix& m, int64_t row, int rows, int64_t output, float* tile) const {
    for (int r = 0; r < rows; ++r) {
      const f32x16 gate = load(tile + r * kTile);
      const f32x16 up = load(tile + r * kTile + kLanes);
      store(out + (row + r) * (m.outputs / 2) + output / 2, silu(gate) * up);
    }
  }
};

// ---- all tiles, all rows -------------------------------------------------------------------------

template <class Tile, class Finish, int R = Tile::kMaxRows>
void multiply_rows(int rows, const Matrix& m, const uint8_t* tile, const Rows& a, int64_t first,
                   int64_t output, const Finish& finish) {
  if constexpr (R > 0) {
    if (rows != R) {
      multiply_rows<Tile, Finish, R - 1>(rows, m, tile, a, first, output, finish);
      return;
    }
    alignas(64) float results[R * kTile];
    Tile::template multiply<R>(m, tile, a, first, results);
    finish(m, first, R, output, results);
  }
}

template <class Tile, class Finish>
void multiply_tile(const Matrix& m, int64_t tile, const Rows& a, const Finish& finish) {
  // Blocks of nearly equal height use the registers better than full ones and a short rest.
  const int64_t blocks = (a.count + Tile::kMaxRows - 1) / Tile::kMaxRows;
  const uint8_t* data = m.data + tile * m.tile_bytes();
  for (int64_t b = 0, first = 0; b < blocks; ++b) {
    const int rows = static_cast<int>((a.count - first + blocks - b - 1) / (blocks - b));
    multiply_rows<Tile, Finish>(rows, m, data, a, first, tile * kTile, finish);
    first += rows;
  }
}

template <class Finish>
void multiply(const Matrix& m, const Rows& a, const Finish& finish) {
  Pool& pool = Pool::instance();
  const int64_t tiles = m.tiles();
  const int64_t per_item = std::max<int64_t>(1, tiles / (pool.threads() * 16));
  pool.run((tiles + per_item - 1) / per_item, [&](int64_t item) {
    const int64_t end = std::min(tiles, (item + 1) * per_item);
    for (int64_t tile = item * per_item; tile < end; ++tile) {
      switch (m.format) {
        case Format::bf16: multiply_tile<TileBf16>(m, tile, a, finish); break;
        case Format::int8: multiply_tile<TileInt8>(m, tile, a, finish); break;
        case Format::int4: multiply_tile<TileInt4>(m, tile, a, finish); break;
      }
    }
  });
}

// Prepares `count` rows of `x` for `m`, normalised first when `norm` is not null.
inline void prepare(const Matrix& m, const float* x, int64_t count, const float* norm, float eps,
                    Rows& out) {
  out.resize(count, m.width, m.eight_bit_rows());
  const auto one = [&](int64_t r) {
    const RowReader row(x + r * m.width, norm, m.width, eps);
    if (m.eight_bit_rows()) {
      quantise_row(row, out, r);
    } else {
      round_row(row, out, r);
    }
  };
  constexpr int64_t kRowsPerItem = 4;  // one row takes well under a microsecond
  Pool::instance().run((count + kRowsPerItem - 1) / kRowsPerItem, [&](int64_t item) {
    const int64_t end = std::min(count, (item + 1) * kRowsPerItem);
    for (int64_t r = item * kRowsPerItem; r < end; ++r) one(r);
  });
}

}  // namespace steelyard
