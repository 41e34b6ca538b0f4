// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/host/calibrate.hpp"

#include <fcntl.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <numeric>
#include <vector>

#include "kernel/base/number.hpp"
#include "kernel/base/rng.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {
namespace {

constexpr int runs_max = 9, runs_least = 3;
constexpr Nanos begin_limit = Nanos::from_s(2);
constexpr int64_t reference_ns = 100'000'000;
// Each part does so much that it takes a third of a run on the reference.
constexpr size_t sort_count = 30'000, matrix = 96, ring_words = 4 << 20;
constexpr int sorts = 22, products = 125, walk_steps = 265'000;

Nanos now() {
    timespec t{};
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    return Nanos{t.tv_sec * 1'000'000'000 + t.tv_nsec};
}

// The results go here, so that the compiler cannot leave the work out.
volatile uint64_t sink;

void integer_work() {
    Rng rng(7);
    std::vector<uint64_t> numbers(sort_count);
    for (int i = 0; i < sorts; ++i) {
        for (uint64_t& number : numbers) number = rng.next();
        std::sort(numbers.begin(), numbers.end());
        sink = sink ^ numbers[sort_count / 2];
    }
}

void floating_work() {
    std::vector<double> a(matrix * matrix, 1.0001), b(matrix * matrix, 0.01), c(matrix * matrix);
    for (int i = 0; i < products; ++i) {
        for (size_t row = 0; row < matrix; ++row)
            for (size_t column = 0; column < matrix; ++column) {
                double sum = 0;
                for (size_t k = 0; k < matrix; ++k)
                    sum += a[row * matrix + k] * b[k * matrix + column];
                c[row * matrix + column] = sum;
            }
        std::swap(a, c);
    }
    sink = sink ^ static_cast<uint64_t>(a[matrix]);
}

// Each word names the next: one ring through all of them.
std::vector<uint32_t> ring() {
    std::vector<uint32_t> order(ring_words), next(ring_words);
    std::iota(order.begin(), order.end(), 0U);
    Rng rng(11);
    for (size_t i = ring_words - 1; i > 0; --i) std::swap(order[i], order[rng.next() % (i + 1)]);
    for (size_t i = 0; i < ring_words; ++i) next[order[i]] = order[(i + 1) % ring_words];
    return next;
}

void memory_work(const std::vector<uint32_t>& next) {
    uint32_t at = 0;
    for (int i = 0; i < walk_steps; ++i) at = next[at];
    sink = sink ^ at;
}

Nanos median(std::vector<int64_t> times) {
    std::sort(times.begin(), times.end());
    return Nanos{times[times.size() / 2]};
}

}  // namespace

Calibration calibrate() {
    const std::vector<uint32_t> next = ring();
    std::vector<int64_t> whole, parts[3];
    const Nanos begin = now();
    while (whole.size() < runs_max && (whole.size() < runs_least || now() - begin < begin_limit)) {
        const Nanos t0 = now();
        integer_work();
        const Nanos t1 = now();
        floating_work();
        const Nanos t2 = now();
        memory_work(next);
        const Nanos t3 = now();
        whole.push_back((t3 - t0).ns);
        parts[0].push_back((t1 - t0).ns);
        parts[1].push_back((t2 - t1).ns);
        parts[2].push_back((t3 - t2).ns);
    }
    Calibration c;
    c.runs = static_cast<int>(whole.size());
    c.median = median(whole);
    c.integer = median(parts[0]);
    c.floating = median(parts[1]);
    c.memory = median(parts[2]);
    c.speed = std::clamp<int64_t>((100 * reference_ns + c.median.ns / 2) / c.median.ns, 1, 16'383);
    return c;
}

Result<int64_t> kept_speed(const std::string& file) {
    TRY_ASSIGN(std::string text, read_file(AT_FDCWD, file));
    while (text.ends_with('\n')) text.pop_back();
    const auto speed = whole_number<int64_t>(text);
    if (!speed || *speed < 1 || *speed > 16'383) return fail(file + ": no speed");
    return *speed;
}

Status keep_speed(const std::string& file, int64_t speed) {
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(file).parent_path(), error);
    if (error) return fail(file + ": " + error.message());
    return replace_file(file, std::to_string(speed) + "\n", 0644, true);
}

}  // namespace souk
