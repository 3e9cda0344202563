// The kernels behind kernels.h: one function per operation, choosing among the templates.
#include "attention.h"
#include "linear.h"

namespace steelyard {

#if defined(__AVX512BF16__)
const bool fast_dot_bf16 = true;
#else
const bool fast_dot_bf16 = false;
#endif
#if defined(__AVX512VNNI__)
const bool fast_dot_int8 = true;
#else
const bool fast_dot_int8 = false;
#endif

void set_threads(int count) { Pool::instance().resize(count); }
int threads() { return Pool::instance().threads(); }

void linear(const Matrix& m, Finish finish, const float* x, int64_t rows, const float* norm,
            float eps, float* out) {
  static Rows scratch;  // one kernel runs at a time
  prepare(m, x, rows, norm, eps, scratch);
  switch (finish) {
    case Finish::store: multiply(m, scratch, StoreTile{out}); break;
    case Finish::add: multiply(m, scratch, AddTile{out}); break;
    case Finish::gate: multiply(m, scratch, GateTile{out}); break;
  }
}

void rotate_and_store(const HeadShape& shape, const Batch& batch, const Rotary& rotary,
                      bool float_pages, float* qkv, void* queries, void* pages) {
  const auto as = [&]<class T>(T* q) {
    rotate_and_store_as<T>(shape, batch, rotary, qkv, q, static_cast<T*>(pages));
  };
  float_pages ? as(static_cast<float*>(queries)) : as(static_cast<uint16_t*>(queries));
}

void attention(const HeadShape& shape, const Batch& batch, bool float_pages, const void* queries,
               const void* pages, float scale, int64_t window, float* out, float* lse) {
  const auto as = [&]<class T>(const T* q) {
    const T* kv = static_cast<const T*>(pages);
    if (shape.head_size == 64) {
      Attention<T, 64>(shape, batch, q, kv, scale, window).run(out, lse);
    } else {
      Attention<T, 128>(shape, batch, q, kv, scale, window).run(out, lse);
    }
  };
  float_pages ? as(static_cast<const float*>(queries)) : as(static_cast<const uint16_t*>(queries));
}

}  // namespace steelyard
