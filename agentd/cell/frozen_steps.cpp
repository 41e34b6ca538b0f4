// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/cell/frozen_steps.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "kernel/sys/process/capsule.hpp"

namespace souk {
namespace {
constexpr Nanos flush_limit = Nanos::from_s(5);  // the job stands meanwhile
}  // namespace

void FrozenSteps::look_at_mounts(bool (*is_network)(std::string_view)) {
    forget_mounts();
    const auto pids = hooks_.pids();
    if (!pids || pids->empty()) return;
    const std::string table = "/proc/" + std::to_string(pids->front()) + "/mountinfo";
    if (const auto mounts = read_file(AT_FDCWD, table))
        devices_ = network_devices(*mounts, is_network);
    if (!devices_.empty()) syncer_ = hooks_.syncer();
}

void FrozenSteps::forget_mounts() {
    devices_.clear();
    syncer_ = Fd();
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

void FrozenSteps::flush() {
    flush_ = std::make_unique<Flush>();
    flush_->limit =
        loop_.after(flush_limit, [this] { fail_flush(Trouble("their server does not answer")); });
    if (devices_.empty()) return ask_home();
    // Each file to be synced is a request to who serves it: not if all is on the home's disk.
    const auto at_home = [this](const Result<AtHome>& at) {
        if (!at) return fail_flush(at.error());
        begin_sync(*at == AtHome::synced);
    };
    if (hooks_.home && devices_.size() == 1) flush_->home = hooks_.home(at_home);
    if (!flush_->home) begin_sync(false);
}

void FrozenSteps::begin_sync(bool mapped_alone) {
    if (Status begun = tell_syncer(mapped_alone); !begun) fail_flush(begun.error());
}

Status FrozenSteps::tell_syncer(bool mapped_alone) {
    if (!syncer_) return tl::unexpected(syncer_.error());
    TRY_ASSIGN(const auto pids, hooks_.pids());
    flush_->syncer = std::move(*syncer_);
    syncer_ = Fd();
    const std::string words = sync_words({devices_, pids, mapped_alone});
    const int fd = flush_->syncer.get();
    if (::send(fd, words.data(), words.size(), MSG_DONTWAIT | MSG_NOSIGNAL) !=
            static_cast<ssize_t>(words.size()) ||
        ::shutdown(fd, SHUT_WR) != 0)
        return fail_errno("who syncs them", errno);
    TRY_ASSIGN(flush_->watch, loop_.watch(fd, POLLIN, [this](short) { hear_syncer(); }));
    return {};
}

void FrozenSteps::hear_syncer() {
    char bytes[1024];
    const ssize_t n = ::recv(flush_->syncer.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n > 0 && flush_->said.size() < sizeof bytes) {
        flush_->said.append(bytes, static_cast<size_t>(n));
        if (flush_->said != "+") return;  // a reason goes on until its end
    }
    flush_->watch.close();
    if (flush_->said == "+") return ask_home();
    fail_flush(flush_->said.starts_with('-') ? Trouble(flush_->said.substr(1))
                                             : Trouble("who syncs them has ended"));
}

void FrozenSteps::ask_home() {
    const auto at_home = [this](const Result<AtHome>& at) {
        if (!at) return fail_flush(at.error());
        flush_.reset();
        hooks_.flushed();
    };
    if (hooks_.home) flush_->home = hooks_.home(at_home);
    if (!flush_->home) at_home(AtHome::written);
}

void FrozenSteps::fail_flush(const Trouble& why) {
    flush_.reset();
    hooks_.failed(why.within("write its files: "));
}

// -------------------------------------------------------------------------------------------------
// its memory

void FrozenSteps::write(int image, const PageFileWrite::Target& to) {
    writing_since_ = Loop::now();
    const auto start = [&]() -> Status {
        TRY_ASSIGN(const auto pids, hooks_.pids());
        const auto done = [this](const Result<ImageFile>& file) {
            writing_.reset();
            if (!file) return hooks_.failed(file.error());
            hooks_.written(*file);
        };
        TRY_ASSIGN(writing_,
                   PageFileWrite::start(loop_, image, to, pids_inside(pids), done, hooks_.open));
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
    forget_mounts();
}

}  // namespace souk
