// A thread pool for kernels that last microseconds.
//
// One idea: the caller takes part, items are claimed one by one, and the caller waits for items,
// never for threads. When the operating system gives a core to somebody else (the gateway, say),
// the late thread finds nothing left to claim and the step does not wait for it.
//
// All claims go through one 64-bit ticket, so that a late thread can never run an item of a job
// that has ended:   | epoch (24) | items (20) | next item (20) |
//
// torch's own OpenMP pool is not used: a second OpenMP runtime in one process fights the first.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace steelyard {

class Pool {
 public:
  static Pool& instance() {
    // Never destroyed: worker threads may outlive static destructors at process exit.
    static Pool* pool = new Pool();
    return *pool;
  }

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Number of threads including the caller. Only grows or shrinks between jobs.
  void resize(int threads) {
    stop();
    stopping_.store(false);
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
  }

  // Calls fn(item) once for every item in [0, items), on several threads; returns when all are
  // done. Not reentrant. Items should take a few microseconds at least.
  template <class Fn>
  void run(int64_t items, Fn&& fn) {
    if (items <= 0) return;
    if (items == 1 || workers_.empty()) {
      for (int64_t i = 0; i < items; ++i) fn(i);
      return;
    }
    if (items > kMaxItems) throw std::length_error("too many items for one job");
    using Body = std::remove_reference_t<Fn>;
    const uint64_t epoch = (ticket_.load(std::memory_order_relaxed) >> 40) + 1;
    Job& job = jobs_[epoch & 1];
    job.call = [](void* body, int64_t item) { (*static_cast<Body*>(body))(item); };
    job.body = const_cast<void*>(static_cast<const void*>(&fn));
    job.finished.store(0, std::memory_order_relaxed);
    ticket_.store((epoch << 40) | (static_cast<uint64_t>(items) << 20), std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) {
      wakeups_.fetch_add(1, std::memory_order_release);
      wakeups_.notify_all();
    }
    while (claim_and_run()) {
    }
    while (job.finished.load(std::memory_order_acquire) < items) pause();
  }

 private:
  static constexpr int64_t kMaxItems = (1 << 20) - 64;  // leaves room for claims past the end
  static constexpr int kSpins = 2000;  // about 50 microseconds, the usual gap between two kernels

  struct alignas(64) Job {
    void (*call)(void*, int64_t) = nullptr;
    void* body = nullptr;
    std::atomic<int64_t> finished{0};
  };

  // Claims one item of the current job and runs it. False when none was left.
  bool claim_and_run() {
    uint64_t ticket = ticket_.load(std::memory_order_acquire);
    if ((ticket & 0xfffff) >= ((ticket >> 20) & 0xfffff)) return false;
    ticket = ticket_.fetch_add(1, std::memory_order_acq_rel);
    const int64_t item = ticket & 0xfffff;
    if (item >= static_cast<int64_t>((ticket >> 20) & 0xfffff)) return false;
    Job& job = jobs_[(ticket >> 40) & 1];
    job.call(job.body, item);
    job.finished.fetch_add(1, std::memory_order_release);
    return true;
  }

  void work() {
    int idle = 0;
    while (!stopping_.load(std::memory_order_relaxed)) {
      if (claim_and_run()) {
        idle = 0;
      } else if (++idle < kSpins) {
        pause();
      } else {
        sleep();
        idle = 0;
      }
    }
  }

  void sleep() {
    const uint32_t seen = wakeups_.load(std::memory_order_acquire);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    // A job posted between the last look and the line above would be missed; look once more.
    const uint64_t ticket = ticket_.load(std::memory_order_seq_cst);
    const bool has_items = (ticket & 0xfffff) < ((ticket >> 20) & 0xfffff);
    if (!has_items && !stopping_.load()) wakeups_.wait(seen, std::memory_order_acquire);
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }

  void stop() {
    stopping_.store(true);
    wakeups_.fetch_add(1);
    wakeups_.notify_all();
    for (auto& worker : workers_) worker.join();
    workers_.clear();
  }

  static void pause() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  Job jobs_[2];
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<int> sleepers_{0};
  std::atomic<uint32_t> wakeups_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

}  // namespace steelyard
