// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/cell/frozen_steps.hpp"

#include <fcntl.h>

#include "kernel/sys/process/capsule.hpp"
#include "kernel/sys/store/network_files.hpp"

namespace souk {
namespace {
constexpr Nanos flush_limit = Nanos::from_s(5);  // the job stands meanwhile
constexpr size_t syncs_max = 64;                 // at once
}  // namespace

void FrozenSteps::look_at_mounts(bool (*is_network)(std::string_view)) {
    devices_.clear();
    const auto pids = hooks_.pids();
    if (!pids || pids->empty()) return;
    const std::string table = "/proc/" + std::to_string(pids->front()) + "/mountinfo";
    if (const auto mounts = read_file(AT_FDCWD, table))
        devices_ = network_devices(*mounts, is_network);
}

// -------------------------------------------------------------------------------------------------
// what its processes share: one alone shares nothing

void FrozenSteps::share(int image) {
    const auto start = [&]() -> Status {
        TRY_ASSIGN(const auto pids, hooks_.pids());
        if (pids.size() < 2) return {};
        TRY_ASSIGN(sharing_, SharedImage::open(image, pids_inside(pids), hooks_.open));
        return {};
    };
    if (auto started = start(); !started) return hooks_.failed(started.error());
    sharing_ ? share_more() : hooks_.shared();
}

void FrozenSteps::share_more() {
    const auto more = sharing_->step();
    if (!more) return hooks_.failed(more.error());
    if (!*more) {
        sharing_.reset();
        return hooks_.shared();
    }
    share_timer_ = loop_.after(Nanos{}, [this] { share_more(); });
}

// -------------------------------------------------------------------------------------------------
// its files

void FrozenSteps::flush(const std::function<Result<Fd>(const Pidfd&, int)>& take) {
    flush_ = std::make_unique<Flush>();
    if (!devices_.empty())
        if (const auto pids = hooks_.pids()) flush_->files = written_files(*pids, devices_, take);
    flush_next();
}

void FrozenSteps::flush_next() {
    const auto give_up = [this](const Trouble& why) {
        hooks_.failed(why.within("write its files: "));
    };
    if (!flush_->limit.waiting())
        flush_->limit =
            loop_.after(flush_limit, [give_up] { give_up("their server does not answer"); });
    // Each is a round trip to a file server.
    while (flush_->syncs.size() < flush_->files.size() && flush_->under_way < syncs_max) {
        auto begun = loop_.sync(flush_->files[flush_->syncs.size()].get(), 0, 0,
                                [this, give_up](const Status& synced) {
                                    --flush_->under_way;
                                    synced ? flush_next() : give_up(synced.error());
                                });
        if (!begun) return give_up(begun.error());
        flush_->syncs.push_back(std::move(*begun));
        ++flush_->under_way;
    }
    if (flush_->under_way > 0) return;
    flush_.reset();
    hooks_.flushed();
}

// -------------------------------------------------------------------------------------------------
// its memory

void FrozenSteps::write(int image, const PageFileWrite::Target& to) {
    writing_since_ = Loop::now();
    const auto start = [&]() -> Status {
        TRY_ASSIGN(const auto pids, hooks_.pids());
        TRY_ASSIGN(writing_, PageFileWrite::start(loop_, image, to, pids_inside(pids),
                                                  [this](const Result<ImageFile>& file) {
                                                      writing_.reset();
                                                      if (!file) return hooks_.failed(file.error());
                                                      hooks_.written(*file);
                                                  }));
        return {};
    };
    if (auto started = start(); !started) hooks_.failed(started.error());
}

std::optional<FrozenSteps::Progress> FrozenSteps::progress(Nanos now) const {
    if (!writing_) return std::nullopt;
    return Progress{writing_->written(), writing_->bytes(), now - writing_since_};
}

void FrozenSteps::stop() {
    share_timer_.cancel();
    sharing_.reset();
    flush_.reset();
    writing_.reset();
}

}  // namespace souk
