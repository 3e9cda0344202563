// Packing: from row-major weights to the tiles of linear.h, and back for single rows.
#include "linear.h"

namespace steelyard {

void pack_matrix(const Matrix& m, const void* values, const uint16_t* scale,
                 const uint16_t* minimum, uint8_t* out) {
  const int64_t groups = m.width / kGroup;
  Pool::instance().run(m.tiles(), [&](int64_t tile_index) {
    uint8_t* tile = out + tile_index * m.tile_bytes();
    const int64_t first = tile_index * kTile;
    const int64_t columns = std::min<int64_t>(kTile, m.outputs - first);
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t row = (first + c) * m.width;
      if (m.format == Format::bf16) {
        const uint16_t* from = static_cast<const uint16_t*>(values) + row;
        uint16_t* to = reinterpret_cast<uint16_t*>(tile);
        for (int64_t k = 0; k < m.width; ++k) to[(k / 2 * kTile + c) * 2 + k % 2] = from[k];
        continue;
      }
      const uint8_t* from = static_cast<const uint8_t*>(values) + row;
      for (int64_t g = 0; g < groups; ++g, from += kGroup) {
        const int64_t at = (first + c) * groups + g;
        if (m.format == Format::int8) {
          uint8_t* group = tile + g * Matrix::kInt8GroupBytes;
          reinterpret_cast<uint16_t*>(group)[c] = scale[at];
          uint8_t* to = group + kTile * 2 + c * 4;
          for (int k = 0; k < kGroup; ++k)
            to[k / 4 * kTile * 4 + k % 4] = static_cast<uint8_t>(from[k] + 128);
        } else {
          uint8_t* group = tile + g * Matrix::kInt4GroupBytes;
          reinterpret_cast<uint16_t*>(group)[c] = scale[at];
          reinterpret_cast<uint16_t*>(group)[kTile + c] = minimum[at];
          uint8_t* to = group + kTile * 4 + c * 4;
          for (int k = 0; k < kGroup / 2; ++k)
            to[k / 4 * kTile * 4 + k % 4] =
                static_cast<uint8_t>((from[k] & 15) | (from[k + kGroup / 2] << 4));
        }
      }
    }
  });
}

inline float f16_to_float(uint16_t bits) {
  _Float16 half;
  std::memcpy(&half, &bits, sizeof half);
  return static_cast<float>(half);
}

void unpack_row(const Matrix& m, int64_t output, float* row) {
  const uint8_t* tile = m.data + output / kTile * m.tile_bytes();
  const int64_t c = output % kTile;
  if (m.format == Format::bf16) {
    const uint16_t* from = reinterpret_cast<const uint16_t*>(tile);
    for (int64_t k = 0; k < m.width; ++k)
      row[k] = bf16_to_float(from[(k / 2 * kTile + c) * 2 + k % 2]);
    return;
  }
  for (int64_t g = 0; g < m.width / kGroup; ++g, row += kGroup) {
    if (m.format == Format::int8) {
      const uint8_t* group = tile + g * Matrix::kInt8GroupBytes;
      const float scale = f16_to_float(reinterpret_cast<const uint16_t*>(group)[c]);
      const uint8_t* from = group + kTile * 2 + c * 4;
      for (int k = 0; k < kGroup; ++k)
        row[k] = scale * static_cast<float>(from[k / 4 * kTile * 4 + k % 4] - 128);
    } else {
      const uint8_t* group = tile + g * Matrix::kInt4GroupBytes;
      const float scale = f16_to_float(reinterpret_cast<const uint16_t*>(group)[c]);
      const float minimum = f16_to_float(reinterpret_cast<const uint16_t*>(group)[kTile + c]);
      const uint8_t* from = group + kTile * 4 + c * 4;
      for (int k = 0; k < kGroup; ++k) {
        const uint8_t byte = from[k % 16 / 4 * kTile * 4 + k % 4];
        row[k] = scale * static_cast<float>(k < 16 ? byte & 15 : byte >> 4) + minimum;
      }
    }
  }
}

}  // namespace steelyard
