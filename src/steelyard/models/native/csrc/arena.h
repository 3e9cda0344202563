// Memory for weights and KV pages on huge pages.
//
// A decode step streams every weight once; with 4 KiB pages the address translation alone costs a
// third of the memory bandwidth. Blocks are carved from 2 MiB-aligned chunks; a chunk is freed when
// its last block is. Without transparent huge pages it is ordinary memory.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>

namespace steelyard {

class Arena {
 public:
  static Arena& instance() {
    static Arena arena;
    return arena;
  }

  // Zeroed memory, aligned to 64 bytes; freed with the last copy of the pointer.
  std::shared_ptr<uint8_t> allocate(size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    bytes = round_up(std::max<size_t>(bytes, 1), 64);
    if (!chunk_ || used_ + bytes > size_) open_chunk(bytes);
    std::shared_ptr<uint8_t> block(chunk_, chunk_.get() + used_);
    used_ += bytes;
    return block;
  }

 private:
  static constexpr size_t kHugePage = size_t{2} << 20;
  static constexpr size_t kChunk = size_t{16} << 20;

  static size_t round_up(size_t value, size_t to) { return (value + to - 1) / to * to; }

  void open_chunk(size_t bytes) {
    const size_t size = round_up(std::max(bytes, kChunk), kHugePage);
    const size_t mapped = size + kHugePage;  // mmap aligns to small pages only
    void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    const uintptr_t address = round_up(reinterpret_cast<uintptr_t>(memory), kHugePage);
    uint8_t* start = reinterpret_cast<uint8_t*>(address);
#if defined(MADV_HUGEPAGE)
    madvise(start, size, MADV_HUGEPAGE);  // advice: failing costs speed only
#endif
    chunk_ = std::shared_ptr<uint8_t>(start, [=](uint8_t*) { munmap(memory, mapped); });
    size_ = size;
    used_ = 0;
  }

  std::mutex mutex_;
  std::shared_ptr<uint8_t> chunk_;
  size_t size_ = 0;
  size_t used_ = 0;
};

}  // namespace steelyard
