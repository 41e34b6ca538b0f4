// SPDX-License-Identifier: GPL-2.0-or-later
// Cell, fifth part: memory that goes ahead of the job, while it runs (pre-copy). At the source in
// rounds; the job stands still for a moment before each, since the kernel cannot tell which pages
// were written to and forget it in one. When it stands frozen and dumped, one more look says what
// of all that is still true: a file of the image names it, and only the rest goes out of the frozen
// job. The destination keeps what comes in memory (AheadStore) and puts it in place from there.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "agentd/cell/cell.hpp"
#include "checkpoint/frozen_memory.hpp"
#include "kernel/base/check.hpp"

namespace souk {
namespace {
constexpr Nanos still_limit = Nanos::from_ms(500);
constexpr uint64_t slice_bytes = 1 << 20, store_slack_bytes = 64 << 20;
constexpr const char* dirty_file_name = "dirty-rate.img";

// Of the bytes of these pages, in this order.
Result<std::string> digest_of(const std::vector<PageRange>& ranges,
                              const std::map<pid_t, pid_t>& pids) {
    constexpr uint64_t pages_at_once = 64;
    const auto buffer = std::make_unique_for_overwrite<char[]>(pages_at_once * page_bytes);
    TRY_ASSIGN(FrozenMemory memory, FrozenMemory::open(ranges, pids));
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
// source

uint64_t Cell::worth_precopy(double link_bytes_per_s, Epoch to) {
    drop_precopy();
    const auto known = dirty();
    dirty_expected_ = known ? known->bytes_per_s : 0;
    if (!criu_) return 0;  // dump() says so
    const auto facts = move_facts(link_bytes_per_s);
    if (!facts || !plan_move(*facts).precopy)
        return 0;  // dump() looks again, and says what is wrong
    precopy_ = std::make_unique<Precopy>();
    precopy_->to = to;
    precopy_->round.memory_bytes = facts->memory_bytes;
    return facts->memory_bytes;
}

Result<PrecopySource*> Cell::precopy_round() {
    if (!precopy_ || !job_group_) return nullptr;
    Precopy& a = *precopy_;
    const Nanos stopped = Loop::now();
    if (a.began.ns == 0) a.began = stopped;
    TRY(lease_.pause(still_limit));
    const auto look = [&]() -> Result<bool> {
        TRY_ASSIGN(const auto pids, job_group_->pids());
        TRY(a.source.look(pids));
        a.round.left_before = std::exchange(a.round.left_bytes, a.source.left_bytes());
        a.round.sent_bytes = a.source.bytes_sent();
        a.round.took = stopped - a.began;
        if (a.round.rounds == 1)
            a.round.dirty_bytes_per_s = dirty_rate(a.round.left_bytes, a.round.took);
        if (!another_round(a.round)) return false;
        TRY(a.source.mark());
        return true;
    };
    const auto more = look();
    TRY(lease_.resume());
    a.longest_stop = std::max(a.longest_stop, Loop::now() - stopped);
    if (!more) return tl::unexpected(more.error());
    a.over = !*more;
    if (a.over) {
        if (a.round.rounds > 0) dirty_ = {{a.round.dirty_bytes_per_s, a.round.left_bytes}, stopped};
        return nullptr;
    }
    ++a.round.rounds;
    return &a.source;
}

std::optional<PrecopyFacts> Cell::precopy_facts() const {
    if (!precopy_ || again_ != Again::no) return std::nullopt;
    const RoundFacts& r = precopy_->round;
    const double link =
        r.took.ns > 0 ? static_cast<double>(r.sent_bytes) / static_cast<double>(r.took.ns) * 1e9
                      : 0;
    return PrecopyFacts{r.sent_bytes, r.took, r.left_bytes, link, r.rounds, r.dirty_bytes_per_s};
}

// What the job has shown goes along, with its age: clocks differ.
void Cell::save_dirty() const {
    const auto fresh = dirty();
    if (!fresh || form_ == MoveForm::stop_and_copy) return;
    const std::string text = std::to_string(fresh->bytes_per_s) + " " +
                             std::to_string(fresh->left_bytes) + " " +
                             std::to_string((Loop::now() - dirty_.at).ns) + "\n";
    if (!create_file(image_fd_.get(), dirty_file_name, text))
        (void)::unlinkat(image_fd_.get(), dirty_file_name, 0);  // it is not known there, then
}

void Cell::load_dirty() {
    const auto text = read_file(image_fd_.get(), dirty_file_name, 256);
    unsigned long rate, left;
    long age;
    if (text && std::sscanf(text->c_str(), "%lu %lu %ld", &rate, &left, &age) == 3 && age >= 0 &&
        age <= dirty_rate_age_max.ns)
        dirty_ = {{rate, left}, Loop::now() - Nanos{age}};
}

std::optional<DirtyFacts> Cell::dirty() const {
    if (dirty_.at == Nanos::never() || Loop::now() - dirty_.at > dirty_rate_age_max)
        return std::nullopt;
    return dirty_.facts;
}

// The job stands frozen, its image is there but for the list.
Status Cell::list_precopy() {
    if (!precopy_ || form_ == MoveForm::stop_and_copy) return {};
    TRY_ASSIGN(const auto pids, job_group_->pids());
    TRY(precopy_->source.look(pids));
    TRY_ASSIGN(const auto ranges, lazy_ranges(image_fd_.get()));
    SplitRanges split = split_ranges(ranges, precopy_->source.valid());
    PrecopyList list{std::move(split.in), ""};
    if (site_.check_precopy) {
        TRY_ASSIGN(list.digest, digest_of(list.ranges, pids_inside(pids)));
    }
    const std::string file = encode_precopy(list);
    if (file.size() > precopy_file_bytes_max)
        return fail("what was sent ahead lies in too many places");
    TRY(create_file(image_fd_.get(), precopy_file_name, file, O_EXCL));
    precopy_->rest = std::move(split.out);
    precopy_->listed = true;
    forecast_.frozen_bytes = bytes_of(precopy_->rest);
    tell_froze();  // again, with what is known now
    const RoundFacts& r = precopy_->round;
    site_.log->info("its memory went ahead",
                    {{"JOB", key_.id.text()},
                     {"EPOCH", key_.epoch.n},
                     {"rounds", std::to_string(r.rounds)},
                     {"sent_bytes", std::to_string(r.sent_bytes)},
                     {"used_bytes", std::to_string(bytes_of(list.ranges))},
                     {"left_bytes", std::to_string(bytes_of(precopy_->rest))},
                     {"ms", std::to_string(r.took.ns / 1'000'000)},
                     {"longest_stop_us", std::to_string(precopy_->longest_stop.ns / 1'000)}});
    return {};
}

// What a destination does not get from its own store.
Result<std::vector<PageRange>> Cell::ranges_for(Epoch to) const {
    if (precopy_ && precopy_->listed && precopy_->to == to) return precopy_->rest;
    (void)::unlinkat(image_fd_.get(), precopy_file_name, 0);  // it was for another
    return lazy_ranges(image_fd_.get());
}

void Cell::drop_precopy() {
    if (!precopy_) return;
    site_.precopy_dropped(key_);
    precopy_.reset();
}

// -------------------------------------------------------------------------------------------------
// destination

Status Cell::expect_precopy(uint64_t bytes) {
    if (!site_.pages_possible) return fail("this node cannot take memory past an image");
    TRY(room_precopy(bytes));
    // it may grow meanwhile
    store_ = std::make_unique<PrecopyStore>(bytes + bytes / 2 + store_slack_bytes);
    return {};
}

Status Cell::take_precopy(const PageRange& range, std::string_view bytes) {
    return store_ && plan_ != Plan::restoring ? store_->put(range, bytes)
                                              : fail("no memory is expected any more");
}

void Cell::precopy_lost() {
    if (plan_ != Plan::restoring) store_.reset();
}

// The image says what of the store is to be used; without such a word nothing is.
Status Cell::use_store() {
    load_dirty();
    const auto file = form_ == MoveForm::stop_and_copy
                          ? Result<std::string>(fail(""))
                          : read_file(image_fd_.get(), precopy_file_name, precopy_file_bytes_max);
    if (!file) return store_.reset(), Status{};
    if (!store_) return fail("the memory that was sent ahead is not here any more");
    TRY_ASSIGN(PrecopyList list, decode_precopy(*file));
    return store_->use(std::move(list));
}

// In slices, so that faults and what comes out of the frozen job have their turn.
void Cell::place_store() {
    for (uint64_t done = 0; done < slice_bytes;) {
        if (!store_ || !sink_ || pages_here_) return;
        const auto piece = store_->next();
        if (!piece) return pages_failed(piece.error().message);
        if (piece->range.pages == 0) return;
        if (auto put = sink_->put(piece->range, piece->bytes); !put)
            return pages_failed(put.error().message);
        store_put_ += piece->bytes.size();
        done += piece->bytes.size();
        page_faults();
    }
    place_timer_ = site_.loop->after(Nanos{}, [this] { place_store(); });
}

// What of these the store has; the rest is for the source.
Result<std::vector<PageRange>> Cell::serve_from_store(const std::vector<PageRange>& wishes) {
    std::vector<PageRange> others;
    for (const PageRange& wish : wishes) {
        TRY_ASSIGN(const PrecopyStore::Piece piece, store_->at(wish));
        if (piece.range.pages == 0) {
            others.push_back(wish);
            continue;
        }
        TRY(sink_->put(piece.range, piece.bytes));
        store_put_ += piece.bytes.size();
    }
    return others;
}

}  // namespace souk
