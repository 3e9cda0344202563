// KV pages: how keys and values of one block lie in memory, and how a step's new ones get there.
//
// Pages are [block][KV head]{keys, values}, each in sub-blocks of 16 tokens:
//
//   keys     [sub-block][head_size / P][16 tokens][P]     P values of one token side by side
//   values   [sub-block][16 / P tokens][head_size][P]     P tokens of one value side by side
//
// with P = 2 for bfloat16 (what a bf16 dot product consumes) and P = 1 for float. So both the
// score and the weighted sum are dot products over whole 64-byte vectors, without any shuffle.
#pragma once

#include "pool.h"
#include "rows.h"

#include <algorithm>

namespace steelyard {

template <class T>
struct Lane;

template <>
struct Lane<uint16_t> {  // bfloat16
  static constexpr int kPack = 2;
  static constexpr int kExpDegree = 4;  // weights are rounded to eight bits of mantissa anyway
  using Vector = i32x16;
  static Vector spread(const uint16_t* p) {
    int32_t word;
    std::memcpy(&word, p, sizeof word);
    return broadcast(word);
  }
  static Vector read(const uint16_t* p) { return load(reinterpret_cast<const int32_t*>(p)); }
  static f32x16 dot(f32x16 acc, Vector a, Vector b) { return dot2_bf16(acc, a, b); }
  static void write(uint16_t* p, f32x16 v) { store_bf16(p, v); }
};

template <>
struct Lane<float> {
  static constexpr int kPack = 1;
  static constexpr int kExpDegree = 6;
  using Vector = f32x16;
  static Vector spread(const float* p) { return broadcast(*p); }
  static Vector read(const float* p) { return load(p); }
  static f32x16 dot(f32x16 acc, Vector a, Vector b) { return fmadd(a, b, acc); }
  static void write(float* p, f32x16 v) { store(p, v); }
};

// Normalises (when asked) and rotates one head in place: pairs (i, i + head_size / 2).
inline void rotate_head(float* x, int64_t size, const float* cosine, const float* sine,
                        const float* norm, float eps) {
  if (norm != nullptr) {
    const f32x16 inverse = broadcast(inverse_rms(x, size, eps));
    for (int64_t i = 0; i < size; i += kLanes)
      store(x + i, load(x + i) * inverse * load(norm + i));
  }
  const int64_t half = size / 2;
  for (int64_t i = 0; i < half; i += kLanes) {
    const f32x16 a = load(x + i), b = load(x + half + i);
    const f32x16 c = load(cosine + i), s = load(sine + i);
    store(x + i, fmadd(a, c, -(b * s)));
    store(x + half + i, fmadd(b, c, a * s));
  }
}

// Scatters one token's key and value of one head into its sub-block.
template <class T>
void write_token(const float* key, const float* value, int64_t size, int lane, T* keys, T* values) {
  constexpr int P = Lane<T>::kPack;
  alignas(64) T row[128];
  for (int64_t i = 0; i < size; i += kLanes) Lane<T>::write(row + i, load(key + i));
  for (int64_t i = 0; i < size; ++i) keys[(i / P) * kSubBlock * P + lane * P + i % P] = row[i];
  for (int64_t i = 0; i < size; i += kLanes) Lane<T>::write(row + i, load(value + i));
  T* to = values + (lane / P) * size * P + lane % P;
  for (int64_t i = 0; i < size; ++i) to[i * P] = row[i];
}

template <class T>
void rotate_and_store_as(const HeadShape& shape, const Batch& batch, const Rotary& rotary,
                         float* qkv, T* queries, T* pages) {
  const int64_t size = shape.head_size;
  const int64_t width = (shape.query_heads + 2 * shape.kv_heads) * size;
  constexpr int64_t kTokensPerItem = 4;
  const auto one = [&](int64_t t) {
    float* row = qkv + t * width;
    const int64_t at = static_cast<int64_t>(batch.positions[t]) * (size / 2);
    for (int64_t h = 0; h < shape.query_heads; ++h) {
      float* q = row + h * size;
      rotate_head(q, size, rotary.cosine + at, rotary.sine + at, rotary.query_norm,
                  rotary.norm_eps);
      T* to = queries + (t * shape.query_heads + h) * size;
      for (int64_t i = 0; i < size; i += kLanes) Lane<T>::write(to + i, load(q + i));
    }
    const int64_t block = batch.slots[t] / shape.block_tokens;
    const int64_t offset = batch.slots[t] % shape.block_tokens;
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      float* k = row + (shape.query_heads + h) * size;
      const float* v = row + (shape.query_heads + shape.kv_heads + h) * size;
      rotate_head(k, size, rotary.cosine + at, rotary.sine + at, rotary.key_norm, rotary.norm_eps);
      T* keys = pages + block * shape.block_elements() + h * shape.head_elements() +
                offset / kSubBlock * kSubBlock * size;
      write_token(k, v, size, static_cast<int>(offset % kSubBlock), keys,
                  keys + shape.value_offset());
    }
  };
  Pool::instance().run((batch.tokens + kTokensPerItem - 1) / kTokensPerItem, [&](int64_t item) {
    const int64_t end = std::min(batch.tokens, (item + 1) * kTokensPerItem);
    for (int64_t t = item * kTokensPerItem; t < end; ++t) one(t);
  });
}

}  // namespace steelyard
