// SPDX-License-Identifier: GPL-2.0-or-later
// testload: a job for tests and demonstrations. It works in steps; each mixes a number for a
// fraction of a millisecond and checks and rewrites a few pages of the memory that it holds. What
// it prints depends on the options and the number of steps alone, never on time or place, so that a
// run that was frozen and moved must end like one that was not.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "kernel/base/pages.hpp"
#include "kernel/base/rng.hpp"
#include "kernel/base/time.hpp"
#include "kernel/base/units.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/fd.hpp"
#include "tools/common/args.hpp"

namespace souk::tools {
namespace {

constexpr const char* tool = "testload";
constexpr size_t pages_per_step = 16;
constexpr int rounds_per_step = 250'000;

struct Options {
    Nanos cpu = Nanos::from_s(10);
    int64_t memory_mb = 0, steps = 0, seed = 1, print_every = 0;
    bool digest = false;
    std::string trace, until;
};

// CPU time of this process that only grows: after a restore the kernel's count begins again at
// zero.
class CpuClock {
  public:
    Nanos spent() {
        const Nanos t = process_cpu_time();
        if (t > last_) sum_ += t - last_;
        last_ = t;
        return sum_;
    }

  private:
    Nanos sum_, last_;
};

// Pages whose content follows from (seed, page, generation); the hash of each is kept beside it.
class Memory {
  public:
    Memory(int64_t megabytes, uint64_t seed)
        : seed_(seed), pages_(static_cast<size_t>(megabytes) * 256) {
        if (pages_ == 0) return;
        void* at = mmap(nullptr, pages_ * page_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) {
            errno_ = errno;
            return;
        }
        bytes_ = static_cast<unsigned char*>(at);
        hashes_.resize(pages_);
        for (size_t page = 0; page < pages_; ++page) fill(page, 0);
    }
    ~Memory() {
        if (bytes_) munmap(bytes_, pages_ * page_bytes);
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    int error() const { return errno_; }
    // The first damaged page from `first` on, of n; -1 if all are well.
    int64_t damaged(size_t first, size_t n) const {
        for (size_t page = first; page < first + n; ++page)
            if (hash(page) != hashes_[page]) return static_cast<int64_t>(page);
        return -1;
    }
    // Checks the pages whose turn it is and writes them anew.
    int64_t step(uint64_t number) {
        for (size_t i = 0; i < pages_per_step && i < pages_; ++i) {
            const uint64_t turn = number * pages_per_step + i;
            const size_t page = turn % pages_;
            if (damaged(page, 1) >= 0) return static_cast<int64_t>(page);
            fill(page, 1 + turn / pages_);
        }
        return -1;
    }
    int64_t damaged() const { return damaged(0, pages_); }
    uint64_t digest() const {
        return XXH3_64bits(hashes_.data(), hashes_.size() * sizeof(uint64_t));
    }

  private:
    uint64_t hash(size_t page) const { return XXH3_64bits(bytes_ + page * page_bytes, page_bytes); }
    void fill(size_t page, uint64_t generation) {
        Rng rng(seed_ ^ (page * 0x9e3779b97f4a7c15) ^ (generation << 40));
        for (size_t at = 0; at < page_bytes; at += sizeof(uint64_t)) {
            const uint64_t word = rng.next();
            std::memcpy(bytes_ + page * page_bytes + at, &word, sizeof word);
        }
        hashes_[page] = hash(page);
    }

    uint64_t seed_;
    size_t pages_;
    unsigned char* bytes_ = nullptr;
    int errno_ = 0;
    std::vector<uint64_t> hashes_;
};

bool print(const std::string& line, int fd = STDOUT_FILENO) {
    const Status printed = write_all(fd, line, fd == STDOUT_FILENO ? "stdout" : "trace");
    if (!printed) complain(tool, printed.error());
    return printed.has_value();
}

int damaged(int64_t page, uint64_t step) {
    complain(tool, "memory is damaged: page " + std::to_string(page) + ", found in step " +
                       std::to_string(step));
    return 1;
}

// Call it before the last step: whoever moves this process must not lose a race against its end.
void wait_for(const std::string& file) {
    constexpr timespec pause{0, 50'000'000};
    while (!file.empty() && access(file.c_str(), F_OK) < 0) nanosleep(&pause, nullptr);
}

int burn(const Options& options) {
    const auto seed = static_cast<uint64_t>(options.seed);
    Memory memory(options.memory_mb, seed);
    if (memory.error()) {
        complain(tool, std::to_string(options.memory_mb) +
                           " MB of memory: " + std::strerror(memory.error()));
        return 1;
    }
    int trace = -1;  // until the process ends
    constexpr int appending = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
    if (!options.trace.empty() && (trace = open(options.trace.c_str(), appending, 0644)) < 0) {
        complain(tool, options.trace + ": " + std::strerror(errno));
        return 1;
    }
    CpuClock clock;
    const Nanos wanted = options.cpu;
    Rng rng(seed);
    uint64_t mixed = 0, step = 0, lines = 0;
    const auto goes_on = [&] {
        return options.steps > 0 ? step < static_cast<uint64_t>(options.steps)
                                 : clock.spent() < wanted;
    };
    while (goes_on()) {
        if (step + 1 == static_cast<uint64_t>(options.steps)) wait_for(options.until);
        for (int round = 0; round < rounds_per_step; ++round)
            mixed = (mixed << 5 | mixed >> 59) ^ rng.next();
        if (const int64_t page = memory.step(step); page >= 0) return damaged(page, step);
        ++step;
        if (trace >= 0 && !print(std::to_string(step) + "\n", trace)) return 1;
        if (options.print_every > 0 && step % static_cast<uint64_t>(options.print_every) == 0)
            if (!print("line " + std::to_string(++lines) + " step " + std::to_string(step) + "\n"))
                return 1;
    }
    if (const int64_t page = memory.damaged(); page >= 0) return damaged(page, step);
    if (!options.digest) return 0;
    char text[64];
    std::snprintf(text, sizeof text, "digest %016llx steps %llu\n",
                  static_cast<unsigned long long>(mixed ^ memory.digest()),
                  static_cast<unsigned long long>(step));
    return print(text) ? 0 : 1;
}

std::function<Status(const char*)> set_whole(int64_t& number, int64_t lo, int64_t hi) {
    return [&number, lo, hi](const char* text) -> Status {
        TRY_ASSIGN(number, parse_whole(text, lo, hi));
        return {};
    };
}

int run(int argc, char** argv) {
    Options o;
    const CommandLine line{
        tool,
        "[options]",
        "Burns CPU time, checking its own memory and numbers all along; exit 1 if any of it is "
        "damaged.",
        {{'t', "time", "TIME", "CPU time to burn: 90s, 10m (default 10s; a number alone: seconds)",
          set_span(o.cpu, Nanos::from_s(1), Nanos::from_s(100'000'000))},
         {'m', "memory", "SIZE",
          "memory to hold, filled, rewritten and verified: 512M, 4G (a number alone: MB)",
          [&](const char* s) -> Status {
              TRY_ASSIGN(o.memory_mb, parse_size_mb(s, 0, 1 << 24));
              return {};
          }},
         {'n', "steps", "N", "so many steps instead of a time", set_whole(o.steps, 1, INT64_MAX)},
         {'s', "seed", "N", "seed of all content (default 1)", set_whole(o.seed, 0, INT64_MAX)},
         {'e', "print-every", "N", "print a numbered line after each N steps",
          set_whole(o.print_every, 1, INT64_MAX)},
         {'a', "append", "FILE",
          "append the number of each step to a file: what ran twice stands there twice",
          [&](const char* s) { return o.trace = s, Status{}; }},
         {'u', "until", "FILE", "with --steps: waits before the last step until FILE is there",
          [&](const char* s) { return o.until = s, Status{}; }},
         {'d', "digest", nullptr, "print a digest of the whole work at the end",
          set_flag(o.digest)}},
        "\nA step takes about half a millisecond. With --steps, all that is printed is the same in "
        "every run.\n",
        true};
    if (const auto ended = parse_options(line, argc, argv)) return *ended;
    return burn(o);
}

}  // namespace
}  // namespace souk::tools

int main(int argc, char** argv) { return souk::tools::run(argc, argv); }
