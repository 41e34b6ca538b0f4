// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/cell/precopy_rounds.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <map>
#include <string>

#include "checkpoint/frozen_memory.hpp"
#include "checkpoint/images.hpp"
#include "checkpoint/page_file.hpp"
#include "kernel/sys/process/capsule.hpp"

namespace souk {
namespace {
constexpr const char* dirty_file_name = "dirty-rate.img";
constexpr int stands_late_most = 20;  // in all rounds

// The digest of the bytes of these pages, in this order.
Result<std::string> digest_of(const std::vector<PageRange>& ranges,
                              const std::map<pid_t, pid_t>& pids, const OpenProcessFiles& open) {
    constexpr uint64_t pages_at_once = 64;
    const auto buffer = std::make_unique_for_overwrite<char[]>(pages_at_once * page_bytes);
    TRY_ASSIGN(FrozenMemory memory, FrozenMemory::open(ranges, pids, open));
    Digest digest;
    for (const PageRange& r : ranges)
        for (uint64_t done = 0; done < r.pages;) {
            const uint64_t part = std::min(r.pages - done, pages_at_once);
            TRY(memory.read({r.pid, r.start + done * page_bytes, part}, buffer.get()));
            digest.add({buffer.get(), part * page_bytes});
            done += part;
        }
    return digest.hex();
}

}  // namespace

// -------------------------------------------------------------------------------------------------
// how fast it writes

std::optional<DirtyFacts> DirtyRate::now() const {
    if (at_ == Nanos::never() || Loop::now() - at_ > dirty_rate_age_max) return std::nullopt;
    return facts_;
}

void DirtyRate::save(int image) const {
    const auto fresh = now();
    if (!fresh) return;
    const std::string text = std::to_string(fresh->bytes_per_s) + " " +
                             std::to_string(fresh->left_bytes) + " " +
                             std::to_string((Loop::now() - at_).ns) + "\n";
    if (!create_file(image, dirty_file_name, text))
        (void)::unlinkat(image, dirty_file_name, 0);  // it is not known there, then
}

void DirtyRate::load(int image) {
    const auto text = read_file(image, dirty_file_name, 256);
    unsigned long rate, left;
    long age;
    if (text && std::sscanf(text->c_str(), "%lu %lu %ld", &rate, &left, &age) == 3 && age >= 0 &&
        age <= dirty_rate_age_max.ns)
        measured({rate, left}, Loop::now() - Nanos{age});
}

// -------------------------------------------------------------------------------------------------
// rounds

void PrecopyRounds::expect() {
    drop();
    const auto known = dirty_.now();
    dirty_expected_ = known ? known->bytes_per_s : 0;
}

void PrecopyRounds::begin(Epoch to, uint64_t memory_bytes) {
    rounds_ = std::make_unique<Rounds>(hooks_);
    rounds_->to = to;
    rounds_->facts.memory_bytes = memory_bytes;
}

// While it stands still. False: another round would not help.
Result<bool> PrecopyRounds::look(Nanos stopped) {
    Rounds& r = *rounds_;
    TRY_ASSIGN(const auto pids, hooks_.pids());
    TRY(r.source.look(pids));
    r.facts.left_before = std::exchange(r.facts.left_bytes, r.source.left_bytes());
    r.facts.sent_bytes = r.source.bytes_sent();
    r.facts.took = stopped - r.began;
    if (r.facts.rounds == 1)
        r.facts.dirty_bytes_per_s = dirty_rate(r.facts.left_bytes, r.facts.took);
    if (!another_round(r.facts)) return false;
    TRY(r.source.mark());
    return true;
}

Result<PrecopySource*> PrecopyRounds::round() {
    if (!rounds_) return nullptr;
    Rounds& r = *rounds_;
    if (const auto pids = hooks_.pids()) r.source.expect(*pids);
    const Nanos stopped = Loop::now();
    if (r.began.ns == 0) r.began = stopped;
    r.stands_late = false;
    if (const Status stands = hooks_.pause(); !stands) {
        r.stands_late = stands.error().code == ETIMEDOUT && r.late++ < stands_late_most;
        return tl::unexpected(stands.error());
    }
    const auto more = look(stopped);
    TRY(hooks_.resume());
    r.longest_stop = std::max(r.longest_stop, Loop::now() - stopped);
    if (!more) return tl::unexpected(more.error());
    r.over = !*more;
    if (r.over) {
        if (r.facts.rounds > 0)
            dirty_.measured({r.facts.dirty_bytes_per_s, r.facts.left_bytes}, stopped);
        return nullptr;
    }
    ++r.facts.rounds;
    return &r.source;
}

std::optional<PrecopyFacts> PrecopyRounds::facts() const {
    if (!rounds_) return std::nullopt;
    const RoundFacts& r = rounds_->facts;
    const double link =
        r.took.ns > 0 ? static_cast<double>(r.sent_bytes) / static_cast<double>(r.took.ns) * 1e9
                      : 0;
    return PrecopyFacts{r.sent_bytes, r.took, r.left_bytes, link, r.rounds, r.dirty_bytes_per_s};
}

Result<std::optional<uint64_t>> PrecopyRounds::list(int image) {
    if (!rounds_) return std::nullopt;
    TRY_ASSIGN(const auto pids, hooks_.pids());
    TRY(rounds_->source.look(pids));
    TRY_ASSIGN(const auto ranges, lazy_ranges(image));
    SplitRanges split = split_ranges(ranges, rounds_->source.valid());
    PrecopyList list{std::move(split.in), ""};
    if (check_) {
        TRY_ASSIGN(list.digest, digest_of(list.ranges, pids_inside(pids), hooks_.open));
    }
    const std::string file = encode_precopy(list);
    if (file.size() > precopy_file_bytes_max)
        return fail("what was sent ahead lies in too many places");
    TRY(create_file(image, precopy_file_name, file, O_EXCL));
    rounds_->rest = std::move(split.out);
    rounds_->listed = true;
    const RoundFacts& r = rounds_->facts;
    const uint64_t left = bytes_of(rounds_->rest);
    log_.info("its memory went ahead", {{"rounds", r.rounds},
                                        {"sent_bytes", r.sent_bytes},
                                        {"used_bytes", bytes_of(list.ranges)},
                                        {"left_bytes", left},
                                        {"ms", r.took.ns / 1'000'000},
                                        {"longest_stop_us", rounds_->longest_stop.ns / 1'000}});
    return left;
}

Result<std::vector<PageRange>> PrecopyRounds::ranges_for(Epoch to, int image) const {
    if (rounds_ && rounds_->listed && rounds_->to == to) return rounds_->rest;
    (void)::unlinkat(image, precopy_file_name, 0);  // it was for another
    return lazy_ranges(image);
}

void PrecopyRounds::drop() {
    if (!rounds_) return;
    hooks_.dropped();
    rounds_.reset();
}

}  // namespace souk
