// From float rows to what the linear kernels read: normalise, then round to bfloat16 or quantise.
//
// Eight-bit rows are quantised per 32 values (the group of the packed weights): scale = max|x| / 127.
#pragma once

#include "kernels.h"
#include "simd.h"

#include <vector>

namespace steelyard {

// Rows ready for a linear kernel; owned by the caller, reused between kernels.
struct Rows {
  int64_t count = 0;
  int64_t width = 0;                   // values per row, a multiple of kGroup for eight-bit rows
  std::vector<uint16_t> bf16;          // [count, width]
  std::vector<int8_t> int8;            // [count, width]
  std::vector<float> scale;            // [count, width / kGroup]
  std::vector<float> scaled_sum;       // [count, width / kGroup]: scale * sum of the eight-bit values
  std::vector<int32_t> offset;         // [count, width / kGroup]: -128 * sum of the eight-bit values

  void resize(int64_t rows, int64_t row_width, bool eight_bit) {
    count = rows;
    width = row_width;
    const size_t values = static_cast<size_t>(rows * row_width);
    if (!eight_bit) {
      if (bf16.size() < values) bf16.resize(values);
      return;
    }
    if (int8.size() >= values) return;
    int8.resize(values);
    scale.resize(values / kGroup);
    scaled_sum.resize(values / kGroup);
    offset.resize(values / kGroup);
  }
};

// 1 / sqrt(mean(x^2) + eps) over `width` values, a multiple of kLanes.
inline float inverse_rms(const float* x, int64_t width, float eps) {
  f32x16 sum{};
  for (int64_t i = 0; i < width; i += kLanes) sum = fmadd(load(x + i), load(x + i), sum);
  return 1.0f / std::sqrt(reduce_add(sum) / static_cast<float>(width) + eps);
}

// Reads one row, optionally RMS-normalised with weights `norm` (null: as it is).
struct RowReader {
  const float* x;
  const float* norm;
  f32x16 inverse;

  RowReader(const float* row, const float* norm_weight, int64_t width, float eps)
      : x(row),
        norm(norm_weight),
        inverse(broadcast(norm_weight ? inverse_rms(row, width, eps) : 1.0f)) {}

  f32x16 at(int64_t i) const {
    f32x16 value = load(x + i);
    return norm ? value * inverse * load(norm + i) : value;
  }
};

inline void round_row(const RowReader& row, Rows& out, int64_t r) {
  uint16_t* to = out.bf16.data() + r * out.width;
  for (int64_t i = 0; i < out.width; i += kLanes) store_bf16(to + i, row.at(i));
}

inline void quantise_row(const RowReader& row, Rows& out, int64_t r) {
  static_assert(kGroup == 2 * kLanes);
  const int64_t groups = out.width / kGroup;
  for (int64_t g = 0; g < groups; ++g) {
    const f32x16 a = row.at(g * kGroup);
    const f32x16 b = row.at(g * kGroup + kLanes);
    const float largest = reduce_max(maximum(maximum(a, -a), maximum(b, -b)));
    const float inverse = largest > 0 ? 127.0f / largest : 0.0f;
    int8_t* to = out.int8.data() + r * out.width + g * kGroup;
    store_int8(to, a * inverse);
    store_int8(to + kLanes, b * inverse);
    int32_t sum = 0;
    for (int i = 0; i < kGroup; ++i) sum += to[i];
    const int64_t at = r * groups + g;
    out.scale[at] = largest / 127.0f;
    out.scaled_sum[at] = out.scale[at] * static_cast<float>(sum);
    out.offset[at] = -128 * sum;
  }
}

}  // namespace steelyard
