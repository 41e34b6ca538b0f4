// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/files_meter.hpp"

#include <algorithm>

namespace souk {
namespace {

// Less than these in a second is nothing.
constexpr uint64_t bytes_least = 1'000, requests_least = 1;

uint64_t each_second(uint64_t count, Nanos span) {
    return static_cast<uint64_t>(static_cast<unsigned __int128>(count) * 1'000'000'000 /
                                 static_cast<uint64_t>(span.ns));
}

// A quarter of the newest; rounded so that it reaches what stays the same.
void follow(uint64_t& mean, uint64_t newest) {
    mean = newest > mean ? mean + (newest - mean + 3) / 4 : mean - (mean - newest + 3) / 4;
}

// Moves the figure that is told, if it is off by more than a quarter.
bool tell(uint64_t& told, uint64_t mean, uint64_t least) {
    const uint64_t to = mean < least ? 0 : mean;
    const uint64_t off = std::max(to, told) - std::min(to, told);
    if (off == 0 || (to != 0 && off <= told / 4)) return false;
    told = to;
    return true;
}

}  // namespace

void FilesMeter::begin(Nanos now, const FilesUse& use) {
    if (since_) return;
    since_ = now;
    bytes_ = use.out_bytes + use.in_bytes;
    requests_ = use.requests;
    bytes_mean_ = use.bytes_per_s;
    requests_mean_ = use.requests_per_s;
}

bool FilesMeter::measure(Nanos now, Nanos round_trip, FilesUse& use) {
    if (!since_ || now - *since_ < window) return false;
    const uint64_t bytes = use.out_bytes + use.in_bytes;
    follow(bytes_mean_, each_second(bytes - std::min(bytes, bytes_), now - *since_));
    follow(requests_mean_,
           each_second(use.requests - std::min(use.requests, requests_), now - *since_));
    since_ = now;
    bytes_ = bytes;
    requests_ = use.requests;
    const bool bytes_told = tell(use.bytes_per_s, bytes_mean_, bytes_least);
    const bool requests_told = tell(use.requests_per_s, requests_mean_, requests_least);
    auto told = static_cast<uint64_t>(use.round_trip.ns);
    const bool trip_told =
        tell(told, static_cast<uint64_t>(std::max<int64_t>(0, round_trip.ns)), 1);
    use.round_trip = Nanos{static_cast<int64_t>(told)};
    return bytes_told || requests_told || trip_told;
}

bool FilesMeter::clear(FilesUse& use) {
    end();
    bytes_mean_ = requests_mean_ = 0;
    if (use.bytes_per_s == 0 && use.requests_per_s == 0) return false;
    use.bytes_per_s = use.requests_per_s = 0;
    return true;
}

}  // namespace souk
