// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/locks.hpp"

#include <fcntl.h>
#include <linux/kcmp.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <utility>

#include "agentd/files/lock_wait.hpp"
#include "agentd/files/talk.hpp"
#include "kernel/sys/net/lock_door.hpp"
#include "kernel/sys/store/served_locks.h"

namespace souk::files {
namespace {

constexpr uint64_t nobody = 0;  // no session: epochs begin at 1
constexpr fuse_file_lock whole_file{0, INT64_MAX, F_UNLCK, 0};
constexpr fuse_file_lock index_alone{souk_index_byte, souk_index_byte, F_WRLCK, 0};
constexpr size_t befores_max = 8, parts_max = 64;

// Tells whether both are of one open file description.
bool is_same_file(int a, int b) {
    const auto own = ::getpid();
    return ::syscall(SYS_kcmp, own, own, KCMP_FILE, a, b) == 0;
}

int mode_of(int fd) { return ::fcntl(fd, F_GETFL) & O_ACCMODE; }

bool allows(int mode, int type) {
    if (type == F_WRLCK) return mode != O_RDONLY;
    return type == F_UNLCK || mode != O_WRONLY;
}

// The locks of a description, as the kernel tells them: "lock:\t1: OFDLCK ADVISORY  WRITE -1
// 08:01:42 100 149" (or EOF). Each is given to `take`, until it returns false.
template <class Take>
void each_lock_of(int fd, bool flock, const Take& take) {
    char path[40], line[256], kind[16], type[16], end[32];
    std::snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    std::FILE* const info = std::fopen(path, "re");
    for (bool more = true; info && more && std::fgets(line, sizeof line, info);) {
        unsigned long long start = 0;
        if (std::sscanf(line, "lock: %*d: %15s %*s %15s %*d %*s %llu %31s", kind, type, &start,
                        end) != 4 ||
            (std::string_view(kind) == "FLOCK") != flock)
            continue;
        unsigned long long last = INT64_MAX;
        (void)std::sscanf(end, "%llu", &last);
        const uint32_t as = std::string_view(type) == "WRITE" ? F_WRLCK : F_RDLCK;
        more = take(fuse_file_lock{start, last, as, 0});
    }
    if (info) std::fclose(info);
}

// The locks in a range. A holder of more than `parts_max` there is given back the first of them.
std::vector<fuse_file_lock> parts_of(int fd, bool flock, const fuse_file_lock& range) {
    std::vector<fuse_file_lock> parts;
    each_lock_of(fd, flock, [&](fuse_file_lock part) {
        part.start = std::max(part.start, range.start);
        part.end = std::min(part.end, range.end);
        if (part.start <= part.end) parts.push_back(part);
        return parts.size() < parts_max;
    });
    return parts;
}

// A part of the range is that lock now, or is free.
void lay_over(Locks::Before& before, fuse_file_lock now) {
    now.start = std::max(now.start, before.range.start);
    now.end = std::min(now.end, before.range.end);
    if (now.start > now.end) return;
    std::vector<fuse_file_lock> parts;
    for (const fuse_file_lock& part : before.parts) {
        if (part.start < now.start)
            parts.push_back({part.start, std::min(part.end, now.start - 1), part.type, 0});
        if (part.end > now.end)
            parts.push_back({std::max(part.start, now.end + 1), part.end, part.type, 0});
    }
    if (now.type != F_UNLCK) parts.push_back(now);
    std::ranges::sort(parts, {}, &fuse_file_lock::start);
    if (parts.size() > parts_max) parts.resize(parts_max);
    before.parts = std::move(parts);
}

fuse_file_lock unlocked(fuse_file_lock range) {
    range.type = F_UNLCK;
    return range;
}

// None of the parts is free in between.
void give_back(int fd, bool flock, const Locks::Before& before) {
    uint64_t at = before.range.start;
    const auto unlock = [&](uint64_t end) {
        if (at < end) (void)set_lock(fd, flock, {at, end - 1, F_UNLCK, 0}, false);
    };
    for (const fuse_file_lock& part : before.parts) {
        (void)set_lock(fd, flock, part, false);
        unlock(part.start);
        at = part.end + 1;
    }
    unlock(before.range.end + 1);
}

}  // namespace

Locks::Locks(uint32_t user) : user_(user), event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Locks::~Locks() = default;

bool Locks::is_used(const Holder& holder, uint64_t number) const {
    const auto has = [&](const Holder& other, uint64_t used) {
        return other.session == holder.session && other.flock == holder.flock && used == number;
    };
    return std::ranges::any_of(held_,
                               [&](const auto& one) { return has(one.first, one.second.used); }) ||
           std::ranges::any_of(waits_,
                               [&](const auto& one) { return has(one->holder, one->used); });
}

// A holder that has closed the file, and still waits for a lock, has the description by which it
// waits.
Locks::All::iterator Locks::find(const Holder& holder) {
    const auto known = held_.find(holder);
    if (known != held_.end()) return known;
    const auto wait =
        std::ranges::find_if(waits_, [&](const auto& one) { return one->holder == holder; });
    if (wait == waits_.end()) return held_.end();
    Held held;
    held.fd = Fd(::fcntl((*wait)->file(), F_DUPFD_CLOEXEC, 3));
    if (!held.fd) return held_.end();
    held.number = (*wait)->number;
    held.used = (*wait)->used;
    return held_.emplace(holder, std::move(held)).first;
}

// Gives the holder a description of its own. It is that of the open file, unless another holder has
// that one (a child that has inherited the file): then the file is opened once more.
int Locks::reopen(const Opened& opened, Held& held) const {
    char path[40];
    std::snprintf(path, sizeof path, "/proc/self/fd/%d", opened.fd);
    Fd other(::open(path, mode_of(opened.fd) | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (!other) return errno == EMFILE || errno == ENFILE ? -ENOLCK : -errno;
    held.fd = std::move(other);
    held.used = 0;
    return 0;
}

// Returns the descriptor by which the holder's locks of the file are held; or -errno. Who has read
// locks by a file that is open for reading, and wants to write lock by another one, gets that one's
// mode: read locks can be had twice, so none is let go in between.
int Locks::description(const Holder& holder, const Opened& opened, int type) {
    if (holder.index) return index_description(holder, opened);
    auto it = find(holder);
    if (it != held_.end() && (holder.flock || allows(mode_of(it->second.fd.get()), type))) {
        it->second.number = opened.number;
        return it->second.fd.get();
    }
    if (it == held_.end()) {
        if (held_.size() >= held_max) return -ENOLCK;
        Held held;
        held.number = opened.number;
        if (!is_used(holder, opened.number)) {
            held.fd = Fd(::fcntl(opened.fd, F_DUPFD_CLOEXEC, 3));
            held.used = opened.number;
            if (!held.fd) return -ENOLCK;
        } else if (const int error = reopen(opened, held); error != 0) {
            return error;
        }
        return held_.emplace(holder, std::move(held)).first->second.fd.get();
    }
    const bool waits =
        std::ranges::any_of(waits_, [&](const auto& one) { return one->holder == holder; });
    if (waits || mode_of(it->second.fd.get()) != O_RDONLY) return -ENOLCK;
    Held held;
    held.number = opened.number;
    held.secret = it->second.secret;
    held.index = it->second.index;
    held.befores = it->second.befores;
    if (const int error = reopen(opened, held); error != 0) return error;
    if (!allows(mode_of(held.fd.get()), F_RDLCK)) return -ENOLCK;
    each_lock_of(it->second.fd.get(), false, [&](const fuse_file_lock& range) {
        return set_lock(held.fd.get(), false, range, false) == 0;
    });
    let_go(it);
    return held_.emplace(holder, std::move(held)).first->second.fd.get();
}

int Locks::index_description(const Holder& holder, const Opened& opened) {
    const auto known = find(holder);
    if (known != held_.end()) {
        known->second.number = opened.number;
        return known->second.fd.get();
    }
    if (held_.size() >= held_max) return -ENOLCK;
    const auto [it, is_new] = indexes_.try_emplace({holder.device, holder.inode});
    int error = 0;
    if (is_new) {
        Held file;
        error = reopen(opened, file);
        it->second.file = std::move(file.fd);
        it->second.stands_in = Fd(::memfd_create("souk-index", MFD_CLOEXEC));
        if (error == 0 && !it->second.stands_in) error = -ENOLCK;
    }
    // It may have been given away, at home.
    if (error == 0) error = set_lock(it->second.file.get(), false, index_alone, false);
    if (error != 0) {
        if (is_new) indexes_.erase(it);
        return error;
    }
    Held held;
    char path[40];
    std::snprintf(path, sizeof path, "/proc/self/fd/%d", it->second.stands_in.get());
    held.fd = Fd(::open(path, O_RDWR | O_CLOEXEC));
    held.number = opened.number;
    if (!held.fd) return -ENOLCK;
    return held_.emplace(holder, std::move(held)).first->second.fd.get();
}

// The job has no index for longer than one of its processes has it open.
void Locks::end_indexes() {
    std::erase_if(indexes_, [&](const auto& one) {
        const auto is_its = [&](const Holder& holder) {
            return holder.index && holder.device == one.first.first &&
                   holder.inode == one.first.second;
        };
        return std::ranges::none_of(held_, [&](const auto& o) { return is_its(o.first); }) &&
               std::ranges::none_of(waits_, [&](const auto& o) { return is_its(o->holder); });
    });
}

int Locks::set(const Holder& holder, const Opened& opened, const fuse_file_lock& range,
               uint64_t seq, uint64_t unique) {
    if (range.type != F_RDLCK && range.type != F_WRLCK && range.type != F_UNLCK) return -EINVAL;
    if (range.start > range.end || range.end > INT64_MAX) return -EINVAL;
    // The job runs there: what it has held elsewhere, and has not taken along, is nobody's.
    if (!on_hold_.contains(holder.session) && !left_.empty()) let_others_go(holder.session, false);
    if (range.type == F_UNLCK && !held_.contains(holder)) return 0;
    const int fd = description(holder, opened, static_cast<int>(range.type));
    if (fd < 0) return fd;
    Before before{undo_number(unique), range, {}, ++orders_};
    if (range.type != F_UNLCK) before.parts = noted_parts(holder, fd, range);
    const int done = set_lock(fd, holder.flock, range, false);
    if (done == 0) {
        note(holder, range);
        if (range.type != F_UNLCK) held_.at(holder).add(std::move(before));
        return 0;
    }
    if (done != -EAGAIN || seq == 0) return done;
    if (waits(holder.session, seq)) return comes_later;
    return wait(holder, std::move(before), seq, unique);
}

int Locks::wait(const Holder& holder, Before before, uint64_t seq, uint64_t unique) {
    const Held& held = held_.at(holder);
    Fd copy(::fcntl(held.fd.get(), F_DUPFD_CLOEXEC, 3));
    if (waits_.size() >= waits_max || !copy) return -ENOLCK;
    auto wait =
        std::make_unique<LockWait>(std::move(copy), holder.flock, before.range, event_.get());
    wait->holder = holder;
    wait->number = held.number;
    wait->used = held.used;
    wait->seq = seq;
    wait->unique = unique;
    wait->before = std::move(before);
    if (!wait->start()) return -ENOLCK;
    waits_.push_back(std::move(wait));
    return comes_later;
}

void Locks::Held::add(Before before) {
    befores.push_back(std::move(before));
    if (befores.size() > befores_max) befores.erase(befores.begin());
}

// Another thread of a holder that waits has changed what it holds. The kernel is not asked: it may
// have granted by then what is waited for.
void Locks::note(const Holder& holder, const fuse_file_lock& change, const LockWait* granted) {
    for (const auto& wait : waits_)
        if (wait->holder == holder && wait.get() != granted) lay_over(wait->before, change);
}

// The holder's locks there, without what a wait of its own may have been granted since.
std::vector<fuse_file_lock> Locks::noted_parts(const Holder& holder, int fd,
                                               const fuse_file_lock& range) const {
    Before now{0, range, parts_of(fd, holder.flock, range)};
    for (const auto& wait : waits_) {
        if (wait->holder != holder) continue;
        lay_over(now, unlocked(wait->before.range));
        for (const fuse_file_lock& part : wait->before.parts) lay_over(now, part);
    }
    return std::move(now.parts);
}

int Locks::undo(const Holder& holder, const fuse_file_lock& range, uint32_t by) {
    const auto it = held_.find(holder);
    if (it == held_.end()) return 0;
    const int fd = it->second.fd.get();
    std::vector<Before>& befores = it->second.befores;
    const auto known =
        std::ranges::find_if(befores, [by](const Before& one) { return one.by == by; });
    Before before{by, range, {}};
    if (known != befores.end()) {
        before = std::move(*known);
        befores.erase(known);
    }
    give_back(fd, holder.flock, before);
    note(holder, unlocked(before.range));
    for (const fuse_file_lock& part : before.parts) note(holder, part);
    return 0;
}

int Locks::get(const Holder& holder, const Opened& opened, fuse_file_lock& range) {
    if (range.start > range.end || range.end > INT64_MAX) return -EINVAL;
    if (const uint32_t question = souk_locks_question(range.start); question != 0)
        return answer(question, holder, opened, range);
    const auto it = held_.find(holder);
    const auto index = indexes_.find({holder.device, holder.inode});
    Held asks;
    int fd = it == held_.end() ? -1 : it->second.fd.get();
    if (fd < 0 && holder.index && index != indexes_.end()) fd = index->second.stands_in.get();
    if (fd < 0 && !is_used(holder, opened.number)) fd = opened.fd;
    if (fd < 0) {
        if (const int error = reopen(opened, asks); error != 0) return error;
        fd = asks.fd.get();
    }
    struct flock as {};
    as.l_type = static_cast<short>(range.type);
    as.l_start = static_cast<off_t>(range.start);
    as.l_len = range.end == INT64_MAX ? 0 : static_cast<off_t>(range.end - range.start + 1);
    if (::fcntl(fd, F_OFD_GETLK, &as) != 0) return -errno;
    range.type = static_cast<uint32_t>(as.l_type);
    range.start = static_cast<uint64_t>(as.l_start);
    range.end = as.l_len == 0 ? INT64_MAX : range.start + static_cast<uint64_t>(as.l_len) - 1;
    range.pid = 0;  // of another machine
    return 0;
}

// ---- what CRIU asks

int Locks::answer(uint32_t question, const Holder& asks, const Opened& opened,
                  fuse_file_lock& range) {
    const auto number = static_cast<uint32_t>(range.start);
    const uint64_t secret = range.end - range.start + 1;
    const uint32_t index = number & ~(souk_locks_of_flock | souk_locks_of_index);
    Holder holder = asks;
    holder.flock = (number & souk_locks_of_flock) != 0;
    holder.index = (number & souk_locks_of_index) != 0;
    const auto it = held_.find(holder);
    bool yes = true;
    switch (question) {
        case souk_locks_any:
            yes = std::ranges::any_of(
                held_, [&](const auto& one) { return one.first.session == holder.session; });
            break;
        case souk_locks_range: {
            yes = false;
            uint32_t left = index;
            if (it == held_.end()) break;
            each_lock_of(it->second.fd.get(), holder.flock, [&](const fuse_file_lock& one) {
                if (left-- != 0) return true;
                range = one;
                yes = true;
                return false;
            });
            if (yes) return 0;
            break;
        }
        case souk_locks_mark:
            // The node says the index, so it is bounded here.
            yes = it != held_.end() && index != 0 && index <= souk_locks_max;
            if (yes) name(it->second, secret, index);
            break;
        case souk_locks_hold: on_hold_.insert(holder.session); break;
        case souk_locks_adopt: yes = adopt(holder, opened, secret, index); break;
        case souk_locks_fetch:
            yes = adopt(holder, opened, secret, index);
            if (yes) break;
            fetch(secret);
            yes = adopt(holder, opened, secret, index);
            break;
        case souk_locks_alone: let_others_go(holder.session, true); break;
        default: on_hold_.erase(holder.session); let_others_go(holder.session, false);
    }
    range.type = yes ? F_WRLCK : F_UNLCK;
    return 0;
}

// The names of one dump are behind one door. A dump that comes later makes another.
void Locks::name(Held& held, uint64_t secret, uint32_t index) {
    held.secret = secret;
    held.index = index;
    if (std::exchange(secret_, secret) == secret) return;
    auto door = open_lock_door(secret);
    door_ = door ? std::move(*door) : Fd();
}

// Those that are not named any more have no descriptor: their numbers stay as they are.
void Locks::answer_at_door() const {
    std::vector<int> all;
    for (const auto& [holder, held] : held_) {
        if (held.secret != secret_ || held.index == 0) continue;
        if (all.size() < held.index) all.resize(held.index, event_.get());
        // Whoever takes it over has the byte itself.
        const auto index = indexes_.find({holder.device, holder.inode});
        const bool stands_in = holder.index && index != indexes_.end();
        all[held.index - 1] = stands_in ? index->second.file.get() : held.fd.get();
    }
    answer_at_lock_door(door_.get(), secret_, user_, all.data(), all.size());
}

// Takes what souk-root keeps of the job as what nobody holds, named by its place.
void Locks::fetch(uint64_t secret) {
    std::vector<Fd> all = take_from_lock_door(secret, 0);
    if (held_.size() + all.size() > held_max) return;
    uint32_t index = 0;
    for (Fd& one : all) {
        ++index;
        struct stat st {};
        if (::fstat(one.get(), &st) != 0) continue;
        Held held;
        held.secret = secret;
        held.index = index;
        bool flock = true;
        each_lock_of(one.get(), false, [&flock](const fuse_file_lock&) { return flock = false; });
        held.fd = std::move(one);
        held_.emplace(Holder{nobody, st.st_dev, st.st_ino, index, flock, false}, std::move(held));
    }
}

bool Locks::adopt(const Holder& holder, const Opened& opened, uint64_t secret, uint32_t index) {
    const auto it = std::ranges::find_if(held_, [&](const auto& one) {
        return one.second.secret == secret && one.second.index == index &&
               one.first.device == holder.device && one.first.inode == holder.inode &&
               one.first.flock == holder.flock && one.first.index == holder.index;
    });
    if (it == held_.end()) return false;
    on_hold_.insert(holder.session);  // until all is taken over, and the job goes on
    it->second.number = opened.number;
    it->second.used = 0;
    if (it->first == holder) return true;
    // One description may come by several names.
    if (const auto has = held_.find(holder); has != held_.end()) {
        if (!is_same_file(has->second.fd.get(), it->second.fd.get())) return false;
        held_.erase(it);
        return true;
    }
    auto one = held_.extract(it);
    one.key() = holder;
    held_.insert(std::move(one));
    return true;
}

// ---- what is let go

// The description may be another's, too: it is unlocked, and not only closed.
Locks::All::iterator Locks::let_go(All::iterator one) {
    (void)set_lock(one->second.fd.get(), one->first.flock, whole_file, false);
    note(one->first, whole_file);
    const bool is_index = one->first.index;
    const auto next = held_.erase(one);
    if (is_index) end_indexes();
    return next;
}

// `all`: also what a session that is not over has held. What souk-root keeps, and nobody has taken
// from here, stays locked by its copy then.
void Locks::let_others_go(uint64_t session, bool all) {
    for (auto it = held_.begin(); it != held_.end();) {
        const uint64_t of = it->first.session;
        if (of == nobody) {
            it = all ? held_.erase(it) : let_go(it);
            continue;
        }
        it = of != session && (all || left_.contains(of)) ? let_go(it) : std::next(it);
    }
    for (const uint64_t of : std::exchange(left_, {})) on_hold_.erase(of);
}

void Locks::closed(const Holder& holder) {
    if (on_hold_.contains(holder.session)) return;
    if (const auto it = held_.find(holder); it != held_.end()) let_go(it);
    Holder of_index = holder;
    of_index.index = true;
    if (const auto it = held_.find(of_index); it != held_.end()) let_go(it);
}

void Locks::released(uint64_t session, uint64_t number) {
    if (on_hold_.contains(session)) return;
    const auto from = held_.lower_bound(Holder{session, 0, 0, 0, false, false});
    for (auto it = from; it != held_.end() && it->first.session == session;)
        it = it->second.number == number ? let_go(it) : std::next(it);
}

void Locks::left(uint64_t session) {
    for (const auto& wait : waits_) {
        if (wait->holder.session != session) continue;
        wait->is_told = false;
        wait->end();
    }
    if (on_hold_.contains(session)) return left_.insert(session), void();
    const auto from = held_.lower_bound(Holder{session, 0, 0, 0, false, false});
    for (auto it = from; it != held_.end() && it->first.session == session;) it = let_go(it);
}

// ---- who waits

void Locks::interrupt(uint64_t session, uint64_t unique) {
    for (const auto& wait : waits_)
        if (wait->holder.session == session && wait->unique == unique) wait->end();
}

bool Locks::waits(uint64_t session, uint64_t seq) const {
    return std::ranges::any_of(waits_, [&](const auto& wait) {
        return wait->holder.session == session && wait->seq == seq && wait->is_told;
    });
}

bool Locks::is_ending() const {
    return std::ranges::any_of(waits_, [](const auto& wait) { return wait->is_ending(); });
}

std::vector<Locks::Ended> Locks::take_ended() {
    uint64_t count = 0;
    (void)!::read(event_.get(), &count, sizeof count);
    std::vector<Ended> all;
    for (auto it = waits_.begin(); it != waits_.end();) {
        LockWait& wait = **it;
        if (!wait.has_ended()) {
            if (wait.is_ending()) wait.end();
            ++it;
            continue;
        }
        if (wait.is_told) all.push_back({wait.holder.session, wait.seq, wait.unique, wait.error()});
        end(wait);
        it = waits_.erase(it);
    }
    end_indexes();
    return all;
}

// The holder has what it was granted, also if a close has let go all that it had before.
void Locks::end(LockWait& wait) {
    if (wait.error() != 0) return;
    if (!wait.is_told) return give_back(wait.file(), wait.holder.flock, wait.before);
    const auto [it, is_new] = held_.try_emplace(wait.holder);
    if (is_new) {
        it->second.number = wait.number;
        it->second.used = wait.used;
        it->second.fd = wait.take_file();
    }
    note(wait.holder, wait.before.range, &wait);
    // Requests that came while it waited may be undone yet, and leave it this lock.
    for (Before& one : it->second.befores)
        if (one.order > wait.before.order) lay_over(one, wait.before.range);
    it->second.add(std::move(wait.before));
}

}  // namespace souk::files
