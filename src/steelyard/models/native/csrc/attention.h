// Causal attention of a flat token batch over paged keys and values, with log-sum-exp.
//
// One idea: the softmax is computed online (Milakov and Gimelshein 2018) over chunks of 64 keys at
// fixed positions, and every 256 keys the partial result is merged into the running one (as
// FlashDecoding does, Dao et al. 2023). Chunk and split borders depend on positions alone, so a
// query's result has the same bits in a prefill, in a decode, in any batch and on any number of
// threads; a long context of a single sequence can still be spread over all threads.
//
// Queries of one KV head are rows: row = token * group + head within the group. Scores are kept in
// units of log2(e), which turns every exponential into a power of two.
#pragma once

#include "pages.h"

#include <memory>
#include <vector>

namespace steelyard {

constexpr int kChunk = 64;       // keys per softmax update
constexpr int kSplit = 256;      // keys per partial result
constexpr int kTileRows = 24;    // query rows that share a pass over the keys
constexpr int kRowBlock = 6;     // query rows per register tile
constexpr int kMaxHead = 128;
// Finite, so that differences are never NaN; a masked score is far below any maximum, also the first.
constexpr float kMinimum = -1e30f;
constexpr float kMasked = -2e30f;

// Softmax state of up to kTileRows rows: weighted sum, maximum and sum of weights.
struct Partial {
  alignas(64) float out[kTileRows * kMaxHead];
  float maximum[kTileRows];
  float sum[kTileRows];

  void clear(int rows, int64_t size) {
    std::fill(out, out + rows * size, 0.0f);
    std::fill(maximum, maximum + rows, kMinimum);
    std::fill(sum, sum + rows, 0.0f);
  }

  // Folds `other`, which covers later keys, into this.
  void merge(const Partial& other, int rows, int64_t size) {
    for (int r = 0; r < rows; ++r) {
      const float high = std::max(maximum[r], other.maximum[r]);
      const float mine = std::exp2(maximum[r] - high), theirs = std::exp2(other.maximum[r] - high);
      sum[r] = sum[r] * mine + other.sum[r] * theirs;
      maximum[r] = high;
      for (int64_t i = 0; i < size; i += kLanes) {
        const f32x16 scaled = load(other.out + r * size + i) * theirs;
        store(out + r * size + i, fmadd(load(out + r * size + i), broadcast(mine), scaled));
      }
    }
  }
};

// A tile of query rows of one sequence and one KV head.
struct Tile {
  int32_t sequence;
  int32_t head;
  int32_t first_row;
  int32_t rows;
};

template <class T, int Size>
class Attention {
 public:
  static constexpr int P = Lane<T>::kPack;

  Attention(const HeadShape& shape, const Batch& batch, const T* queries, const T* pages,
            float scale, int64_t window)
      : shape_(shape),
        batch_(batch),
        queries_(queries),
        pages_(pages),
        scale_(scale * kLog2E),
        window_(window) {}

  // out [tokens, query_heads, Size]; lse [tokens, query_heads] or null.
  void run(float* out, float* lse) {
    const std::vector<Tile> tiles = cut();
    int64_t longest = 0;
    for (int64_t s = 0; s < batch_.sequences; ++s)
      longest = std::max<int64_t>(longest, batch_.contexts[s]);
    Pool& pool = Pool::instance();
    const int64_t splits = (longest + kSplit - 1) / kSplit;
    if (splits > 1 && static_cast<int64_t>(tiles.size()) < 4 * pool.threads()) {
      run_split(tiles, splits, out, lse);
      return;
    }
    pool.run(static_cast<int64_t>(tiles.size()), [&](int64_t i) {
      const Tile& tile = tiles[i];
      Partial total, part;
      total.clear(tile.rows, Size);
      for (int64_t s = first_key(tile) / kSplit; s * kSplit < end_key(tile); ++s) {
        attend_split(tile, s, part);
        total.merge(part, tile.rows, Size);
      }
      finish(tile, total, out, lse);
    });
  }

 private:
  // The same work with one item per (tile, split), for few sequences with long contexts.
  void run_split(const std::vector<Tile>& tiles, int64_t splits, float* out, float* lse) {
    // Left uninitialised on purpose: every part that is read has been cleared by its item.
    const int64_t items = static_cast<int64_t>(tiles.size()) * splits;
    const std::unique_ptr<Partial[]> parts(new Partial[items]);
    const auto inside = [&](const Tile& tile, int64_t split) {
      return split >= first_key(tile) / kSplit && split * kSplit < end_key(tile);
    };
    Pool::instance().run(items, [&](int64_t i) {
      const Tile& tile = tiles[i / splits];
      if (inside(tile, i % splits)) attend_split(tile, i % splits, parts[i]);
    });
    for (size_t t = 0; t < tiles.size(); ++t) {
      Partial total;
      total.clear(tiles[t].rows, Size);
      for (int64_t s = 0; s < splits; ++s)
        if (inside(tiles[t], s)) total.merge(parts[t * splits + s], tiles[t].rows, Size);
      finish(tiles[t], total, out, lse);
    }
  }

  std::vector<Tile> cut() const {
    std::vector<Tile> tiles;
    const int group = static_cast<int>(shape_.group());
    for (int64_t s = 0; s < batch_.sequences; ++s) {
      const int rows = (batch_.starts[s + 1] - batch_.starts[s]) * group;
      for (int32_t head = 0; head < shape_.kv_heads; ++head)
        for (int first = 0; first < rows; first += kTileRows)
          tiles.push_back({static_cast<int32_t>(s), head, first, std::min(kTileRows, rows - first)});
    }
    return tiles;
  }

  int64_t position(const Tile& tile, int row) const {
    const int64_t token = batch_.starts[tile.sequence] + (tile.first_row + row) / shape_.group();
    return batch_.positions[token];
  }
  int64_t first_key(const Tile& tile) const {
    return window_ > 0 ? std::max<int64_t>(0, position(tile, 0) - window_ + 1) : 0;
  }
  int64_t end_key(const Tile& tile) const { return position(tile, tile.rows - 1) + 1; }

  // Index in `queries` and `out` (in heads) of a row of a tile.
  int64_t query_index(const Tile& tile, int row) const {
    const int64_t group = shape_.group();
    const int64_t at = tile.first_row + row;
    const int64_t token = batch_.starts[tile.sequence] + at / group;
    return token * shape_.query_heads + tile.head * group + at % group;
  }

  void attend_split(const Tile& tile, int64_t split, Partial& part) const {
    part.clear(tile.rows, Size);
    const int64_t end = std::min<int64_t>(end_key(tile), (split + 1) * kSplit);
    const int64_t begin = std::max<int64_t>(first_key(tile) / kChunk * kChunk, split * kSplit);
    for (int64_t key = begin; key < end; key += kChunk) attend_chunk(tile, key, end, part);
  }

  void attend_chunk(const Tile& tile, int64_t key, int64_t end, Partial& part) const {
    alignas(64) float scores[kTileRows * kChunk];
    alignas(64) T weights[kTileRows * kChunk];
    const T* keys[kChunk / kSubBlock];
    const T* values[kChunk / kSubBlock];
    const int blocks = static_cast<int>((std::min<int64_t>(kChunk, end - key) + kSubBlock - 1) /
                                        kSubBlock);
    for (int b = 0; b < kChunk / kSubBlock; ++b) {
      // Missing sub-blocks repeat the last one: computed, masked, and harmless.
      keys[b] = locate(tile, key + std::min(b, blocks - 1) * kSubBlock);
      values[b] = keys[b] + shape_.value_offset();
    }
    fetch_ahead(tile, key + kChunk, end);
    for (int r = 0; r < tile.rows; r += kRowBlock) {
      const int rows = std::min(kRowBlock, tile.rows - r);
      score_rows(rows, tile, r, keys, scores + r * kChunk);
    }
    for (int r = 0; r < tile.rows; ++r)
      soften(position(tile, r), key, scores + r * kChunk, weights + r * kChunk, part.maximum[r],
             part.sum[r], part.out + r * Size);
    for (int r = 0; r < tile.rows; r += kRowBlock) {
      const int rows = std::min(kRowBlock, tile.rows - r);
      weigh_rows(rows, weights + r * kChunk, values, blocks, part.out + r * Size);
    }
  }

  // Keys of the sub-block that holds position `key`, for this tile's KV head.
  const T* locate(const Tile& tile, int64_t key) const {
    const int32_t* table = batch_.table + batch_.rows[tile.sequence] * batch_.table_stride;
    const int64_t block = table[key / shape_.block_tokens];
    return pages_ + block * shape_.block_elements() + tile.head * shape_.head_elements() +
           key % shape_.block_tokens / kSubBlock * kSubBlock * Size;
  }

  // Blocks lie anywhere, so the processor cannot foresee the next ones; we can.
  void fetch_ahead(const Tile& tile, int64_t key, int64_t end) const {
    for (int b = 0; b < kChunk / kSubBlock && key + b * kSubBlock < end; ++b) {
      const T* keys = locate(tile, key + b * kSubBlock);
      for (int64_t i = 0; i < kSubBlock * Size; i += 64 / sizeof(T)) {
        __builtin_prefetch(keys + i, 0, 2);
        __builtin_prefetch(keys + shape_.value_offset() + i, 0, 2);
      }
    }
  }

  template <int R = kRowBlock>
  void score_rows(int rows, const Tile& tile, int first, const T* const* keys,
                  float* scores) const {
    if constexpr (R > 0) {
      if (rows != R) return score_rows<R - 1>(rows, tile, first, keys, scores);
      const T* q[R];
      for (int r = 0; r < R; ++r) q[r] = queries_ + query_index(tile, first + r) * Size;
      f32x16 acc[R][4] = {};
      for (int i = 0; i < Size; i += P) {
        const auto k0 = Lane<T>::read(keys[0] + i * kSubBlock);
        const auto k1 = Lane<T>::read(keys[1] + i * kSubBlock);
        const auto k2 = Lane<T>::read(keys[2] + i * kSubBlock);
        const auto k3 = Lane<T>::read(keys[3] + i * kSubBlock);
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
          const auto a = Lane<T>::spread(q[r] + i);
          acc[r][0] = Lane<T>::dot(acc[r][0], a, k0);
          acc[r][1] = Lane<T>::dot(acc[r][1], a, k1);
          acc[r][2] = Lane<T>::dot(acc[r][2], a, k2);
          acc[r][3] = Lane<T>::dot(acc[r][3], a, k3);
        }
      }
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r)
        for (int b = 0; b < 4; ++b) store(scores + r * kChunk + b * kLanes, acc[r][b] * scale_);
    }
  }

  // Turns one row's scores into weights. Keys outside (position - window, position] get none.
  void soften(int64_t position, int64_t key, float* scores, T* weights, float& maximum_so_far,
              float& sum, float* out) const {
    const int64_t lowest = window_ > 0 ? position - window_ + 1 - key : 0;
    if (lowest > 0 || position - key < kChunk - 1) mask(lowest, position - key, scores);
    f32x16 high = load(scores);
    for (int b = 1; b < 4; ++b) high = maximum(high, load(scores + b * kLanes));
    const float top = std::max(maximum_so_far, reduce_max(high));
    f32x16 total{};
    for (int b = 0; b < 4; ++b) {
      const f32x16 score = load(scores + b * kLanes);
      const f32x16 weight = exp2_nonpositive<Lane<T>::kExpDegree>(score - top);
      total += weight;
      Lane<T>::write(weights + b * kLanes, weight);
    }
    if (top != maximum_so_far) {  // else the factor is exactly 1
      const float fade = std::exp2(maximum_so_far - top);
      sum *= fade;
      maximum_so_far = top;
      for (int64_t i = 0; i < Size; i += kLanes) store(out + i, load(out + i) * fade);
    }
    sum += reduce_add(total);
  }

  // Scores of keys outside [first, last] become so small that their weights vanish.
  static void mask(int64_t first, int64_t last, float* scores) {
    const i32x16 lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const i32x16 low = broadcast(static_cast<int32_t>(std::max<int64_t>(first, 0)));
    const i32x16 high = broadcast(static_cast<int32_t>(std::max<int64_t>(last, -1)));
    for (int b = 0; b < kChunk / kLanes; ++b) {
      const i32x16 at = lanes + b * kLanes;
      const i32x16 visible = (at >= low) & (at <= high);
      const f32x16 score = load(scores + b * kLanes);
      store(scores + b * kLanes, visible ? score : broadcast(kMasked));
    }
  }

  template <int R = kRowBlock>
  void weigh_rows(int rows, const T* weights, const T* const* values, int blocks,
                  float* out) const {
    if constexpr (R > 0) {
      if (rows != R) return weigh_rows<R - 1>(rows, weights, values, blocks, out);
      for (int column = 0; column < Size; column += 4 * kLanes) {
        f32x16 acc[R][4];
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r)
          for (int c = 0; c < 4; ++c) acc[r][c] = load(out + r * Size + column + c * kLanes);
        for (int b = 0; b < blocks; ++b) {
          for (int t = 0; t < kSubBlock; t += P) {
            const T* v = values[b] + t * Size + column * P;
            const auto v0 = Lane<T>::read(v);
            const auto v1 = Lane<T>::read(v + kLanes * P);
            const auto v2 = Lane<T>::read(v + 2 * kLanes * P);
            const auto v3 = Lane<T>::read(v + 3 * kLanes * P);
#pragma GCC unroll 6
            for (int r = 0; r < R; ++r) {
              const auto w = Lane<T>::spread(weights + r * kChunk + b * kSubBlock + t);
              acc[r][0] = Lane<T>::dot(acc[r][0], w, v0);
              acc[r][1] = Lane<T>::dot(acc[r][1], w, v1);
              acc[r][2] = Lane<T>::dot(acc[r][2], w, v2);
              acc[r][3] = Lane<T>::dot(acc[r][3], w, v3);
            }
          }
        }
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r)
          for (int c = 0; c < 4; ++c) store(out + r * Size + column + c * kLanes, acc[r][c]);
      }
    }
  }

  void finish(const Tile& tile, const Partial& total, float* out, float* lse) const {
    for (int r = 0; r < tile.rows; ++r) {
      const int64_t at = query_index(tile, r);
      const float inverse = 1.0f / total.sum[r];
      for (int64_t i = 0; i < Size; i += kLanes)
        store(out + at * Size + i, load(total.out + r * Size + i) * inverse);
      if (lse != nullptr) lse[at] = (total.maximum[r] + std::log2(total.sum[r])) * kLn2;
    }
  }

  const HeadShape& shape_;
  const Batch& batch_;
  const T* queries_;
  const T* pages_;
  float scale_;
  int64_t window_;
};

}  // namespace steelyard
