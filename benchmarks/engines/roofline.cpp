// What this machine can do at best: bytes read per second, dot products per second.
//
//   roofline THREADS MIB     prints one "name value" per line, in bytes or operations per second
//
// Bandwidth: all threads read one buffer on huge pages, front to back, each its own part; with and
// without prefetching; best of many passes. Dot products: chains of independent instructions on
// registers, so that neither loads nor latency limit them; an operation is a multiplication or an
// addition. What the compiler's target lacks is left out.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include <sys/mman.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace {

constexpr int kPasses = 12;
constexpr int kChains = 12;
constexpr long kRounds = 30'000'000;

alignas(64) const char zeros[64 * kChains] = {};

typedef int64_t Words __attribute__((vector_size(64)));

double now_s() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(time).count();
}

// Seconds that `work(thread)` takes on all threads side by side.
template <class Work>
double side_by_side(int threads, const Work& work) {
  const double began_s = now_s();
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(work, t);
  work(0);
  for (auto& other : others) other.join();
  return now_s() - began_s;
}

template <int kAhead>
void read_part(const char* begin, const char* end) {
  Words sum[4] = {};
  for (const char* p = begin; p < end; p += 256) {
    for (int i = 0; i < 4; ++i) {
      if (kAhead > 0) __builtin_prefetch(p + kAhead + 64 * i);
      sum[i] += *reinterpret_cast<const Words*>(p + 64 * i);
    }
  }
  const Words all = sum[0] + sum[1] + sum[2] + sum[3];
  asm volatile("" : : "m"(all));
}

double bandwidth(int threads, size_t bytes) {
  constexpr size_t kHugePage = 2 << 20;
  char* buffer = static_cast<char*>(std::aligned_alloc(kHugePage, bytes));
  if (buffer == nullptr) std::abort();
  madvise(buffer, bytes, MADV_HUGEPAGE);
  for (size_t i = 0; i < bytes; i += 64) buffer[i] = static_cast<char>(i);
  const size_t part = bytes / threads / 256 * 256;
  double best_s = 1e9;
  for (int pass = 0; pass < kPasses; ++pass) {
    best_s = std::min(best_s, side_by_side(threads, [&](int t) {
      const char* begin = buffer + t * part;
      switch (pass % 3) {
        case 0: read_part<0>(begin, begin + part); break;
        case 1: read_part<1024>(begin, begin + part); break;
        default: read_part<4096>(begin, begin + part); break;
      }
    }));
  }
  std::free(buffer);
  return static_cast<double>(part) * threads / best_s;
}

// `step` is one instruction on a chain's accumulator; `operations` is what one instruction does.
template <class Vector, class Step>
double dot_rate(int threads, int operations, const Step& step) {
  double best_s = 1e9;
  for (int pass = 0; pass < 3; ++pass) {
    best_s = std::min(best_s, side_by_side(threads, [&](int) {
      // Read from where the compiler cannot look: equal chains would be computed once for all.
      const Vector* source = reinterpret_cast<const Vector*>(zeros);
      asm volatile("" : "+r"(source));
      Vector chain[kChains];
#pragma GCC unroll 12
      for (int i = 0; i < kChains; ++i) chain[i] = source[i];
      for (long round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
        for (int i = 0; i < kChains; ++i) chain[i] = step(chain[i]);
        // Forbids the compiler to do several rounds at once.
        asm volatile("" : : "v"(chain[0]));
      }
#pragma GCC unroll 12
      for (int i = 0; i < kChains; ++i) asm volatile("" : : "v"(chain[i]));
    }));
  }
  return static_cast<double>(threads) * kRounds * kChains * operations / best_s;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  const int threads = std::atoi(arguments[1]);
  std::printf("bytes %.6g\n", bandwidth(threads, std::strtoull(arguments[2], nullptr, 10) << 20));
#if defined(__AVX512F__)
  const __m512 half = _mm512_set1_ps(0.5f);
  std::printf("fp32 %.6g\n", dot_rate<__m512>(threads, 32, [&](__m512 sum) {
    return _mm512_fmadd_ps(half, half, sum);
  }));
#endif
#if defined(__AVX512BF16__)
  const __m512bh pairs = (__m512bh)_mm512_set1_epi16(0x3f00);
  std::printf("bf16 %.6g\n", dot_rate<__m512>(threads, 64, [&](__m512 sum) {
    return _mm512_dpbf16_ps(sum, pairs, pairs);
  }));
#endif
#if defined(__AVX512VNNI__)
  const __m512i bytes = _mm512_set1_epi8(1);
  std::printf("int8 %.6g\n", dot_rate<__m512i>(threads, 128, [&](__m512i sum) {
    return _mm512_dpbusd_epi32(sum, bytes, bytes);
  }));
#endif
  return 0;
}
