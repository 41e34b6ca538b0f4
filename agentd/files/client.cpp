// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/client.hpp"

#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "agentd/files/ahead_writes.hpp"
#include "agentd/files/cache.hpp"
#include "agentd/files/content_reads.hpp"
#include "agentd/files/expected.hpp"
#include "agentd/files/held_answers.hpp"
#include "agentd/files/lock_requests.hpp"
#include "agentd/files/notices.hpp"
#include "agentd/files/own_requests.hpp"
#include "agentd/files/umask.hpp"
#include "agentd/files/unsynced.hpp"
#include "agentd/files/upstream.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/net/descriptors.hpp"

namespace souk::files {
namespace {

constexpr int64_t late_ns = 500'000'000;          // an answer; a signal then ends the call
constexpr int64_t close_late_ns = 3'000'000'000;  // to a close: what was written is on its way
constexpr int64_t greet_late_ns = 1'000'000'000;  // a greeting, before a mount begins
constexpr int look_ms = 250;                      // while a signal waits for that
constexpr int quiet_ms = 1000;                    // memory is given back then

// The server does not answer such a request, and the request may not be sent twice.
bool grants_nothing(uint32_t opcode) {
    return opcode == FUSE_FORGET || opcode == FUSE_BATCH_FORGET;
}

class Client {
  public:
    explicit Client(const ClientOptions& options, Slots requests)
        : options_(options),
          slots_(std::move(requests)),
          upstream_(slots_),
          unsynced_(!slots_.used()),
          expected_(slots_, cache_, upstream_),
          contents_(slots_, cache_, upstream_,
                    [this](const void* bytes, size_t size) { return to_kernel(bytes, size); }),
          locks_(slots_, upstream_, cache_, options.fuse, !slots_.used(),
                 [this](const void* bytes, size_t size) { return to_kernel(bytes, size); }),
          writes_(
              slots_, cache_,
              [this](const void* bytes, size_t size) { return to_kernel(bytes, size); },
              [this](uint64_t node) { notices_.changed(node); },
              [this](uint64_t node) { return locks_.may_hold(node); }),
          notices_(options.fuse, slots_, [this] { return take_requests(); }) {
        if (!slots_.used()) slots_.hear_closes();
    }

    Status run();

  private:
    Status hear_keeper();
    void lose_stream(const Error& why);
    Status talk(short ready);
    bool signal_waits();
    Status take_requests();
    Status take_request(uint32_t n, size_t bytes);
    Status end_request(uint32_t n, Status answered);
    Status answer_init_request();
    bool is_waited_for(uint64_t unique);
    Status take_over();
    Status interrupted(uint64_t unique);
    Status answer_late();
    Status answered(const Talk::Message& message);
    Status answer_open(uint32_t n, ByteView answer);
    Status answer_held();
    Status not_taken(int code, const fuse_in_header& asked);
    Status to_kernel(const void* bytes, size_t size);
    Status refuse(uint64_t unique, int error);
    Status tell_kernel();
    void close_unwanted();
    void undo(uint32_t opcode, uint64_t node, ByteView answer);
    void undo(const Bytes& back);
    int slot_of(uint64_t seq);

    const ClientOptions& options_;
    Slots slots_;
    Cache cache_;
    Upstream upstream_;
    Unsynced unsynced_;
    Expected expected_;
    ContentReads contents_;
    LockRequests locks_;
    AheadWrites writes_;
    Notices notices_;
    HeldAnswers held_;
    int init_waits_ = -1;  // the slot of the mount's first request
    int64_t init_since_ns_ = 0;
    bool ended_ = false;
};

Lease lease_said(uint64_t said) {
    said &= ~file_has_changed;
    return said <= static_cast<uint64_t>(Lease::file) ? static_cast<Lease>(said) : Lease::none;
}

int64_t now_ns() { return monotonic_now().ns; }

Status Client::to_kernel(const void* bytes, size_t size) {
    if (::write(options_.fuse, bytes, size) >= 0) return {};
    // ENOENT: nobody waits for it any more; ENODEV: the mount has ended.
    if (errno == ENOENT || errno == EINTR) return {};
    if (errno == ENODEV) ended_ = true;
    // An answer that the kernel does not take is the server's fault.
    return errno == EINVAL || errno == ENODEV ? Status{} : fail_errno("answer the kernel", errno);
}

Status Client::tell_kernel() {
    for (const uint64_t node : cache_.take_stale()) notices_.changed(node);
    TRY_ASSIGN(const bool told, notices_.tell());
    if (!told) ended_ = true;
    return {};
}

Status Client::refuse(uint64_t unique, int error) {
    fuse_out_header answer{};
    answer.len = sizeof answer;
    answer.error = -error;
    answer.unique = unique;
    return to_kernel(&answer, sizeof answer);
}

// ---- from the kernel

Status Client::take_requests() {
    for (int turn = 0; turn < 16; ++turn) {
        const int free = slots_.find_ready();
        if (free < 0) return {};
        const auto n = static_cast<uint32_t>(free);
        slots_.begin_reading(n);
        const ssize_t got = ::read(options_.fuse, slots_.data(n), request_bytes_max);
        if (got < 0) {
            const int why = errno;
            slots_.drop(n);
            if (why == EAGAIN || why == EINTR || why == ENOENT) return {};
            if (why == ENODEV) return ended_ = true, Status{};
            return fail_errno("read from /dev/fuse", why);
        }
        TRY(take_request(slots_.has_read(n, static_cast<size_t>(got)), static_cast<size_t>(got)));
    }
    return {};
}

// An answer to an interrupt, by which the kernel does nothing, is refused if it does not wait for
// the answer to the request.
bool Client::is_waited_for(uint64_t unique) {
    const fuse_out_header answer{sizeof answer, 0, unique | 1};  // FUSE_INT_REQ_BIT
    return ::write(options_.fuse, &answer, sizeof answer) >= 0 || errno != ENOENT;
}

// Takes over the requests that an earlier client was reading, or was about to end.
Status Client::take_over() {
    for (uint32_t n = 0; n < slots; ++n)
        if (slots_.at(n).state == Slot::taken && slots_.at(n).dropped == Slot::ended)
            TRY(refuse(slots_.head(n).unique, EINTR));
    return slots_.take_over([this](uint64_t unique) { return is_waited_for(unique); },
                            [this](uint32_t n, size_t bytes) { return take_request(n, bytes); });
}

Status Client::take_request(uint32_t n, size_t bytes) {
    Slot& slot = slots_.at(n);
    const fuse_in_header h = slots_.head(n);
    slot.bytes = static_cast<uint32_t>(bytes);
    if (h.opcode == FUSE_INIT) {
        init_waits_ = static_cast<int>(n);  // it stays as one that is being read
        init_since_ns_ = now_ns();
        return upstream_.welcomed() ? answer_init_request() : Status{};
    }
    if (h.opcode == FUSE_INTERRUPT) {
        fuse_interrupt_in in{};
        std::memcpy(&in, slots_.data(n) + sizeof h, sizeof in);
        Status done = interrupted(in.unique);
        slots_.drop(n);
        return done;
    }
    if (h.opcode == FUSE_DESTROY) return end_request(n, refuse(h.unique, 0));
    mask_mode(slots_.data(n), bytes);
    const ByteView whole(slots_.data(n), bytes);
    TRY_ASSIGN(const bool settled, writes_.settles(n, now_ns()));
    if (settled) return {};
    if (is_about_lock(h.opcode)) {
        TRY_ASSIGN(const bool answered, locks_.settles(n));
        if (answered) return {};
    }
    if (unsynced_.is_synced(whole)) return end_request(n, refuse(h.unique, 0));
    if (grants_nothing(h.opcode)) {
        unsynced_.asked(whole, 0);
        if (!cache_.forgotten(slots_.data(n), bytes)) return slots_.drop(n), Status{};
    } else if (h.opcode == FUSE_READ && contents_.takes(n, now_ns())) {
        return {};
    } else if (Bytes known; cache_.answer(whole, now_ns(), known)) {
        upstream_.knew();
        return end_request(n, to_kernel(known.data(), known.size()));
    }
    slots_.take(n, now_ns());
    unsynced_.asked(whole, slots_.at(n).seq);
    upstream_.queue(n);
    return writes_.taken(n, now_ns(), upstream_.connected() && upstream_.welcomed());
}

// The server has greeted, and so it is known whether it takes locks. One that does not greet soon
// counts as one that does: no call can be interrupted before the kernel has this answer.
Status Client::answer_init_request() {
    const auto n = static_cast<uint32_t>(std::exchange(init_waits_, -1));
    const uint64_t unique = slots_.head(n).unique;
    const bool locks = !upstream_.welcomed() || upstream_.can_lock();
    const auto answer = answer_init({slots_.data(n), slots_.at(n).bytes}, locks);
    if (locks) slots_.leave_locks_to_home();
    const Status told = answer ? to_kernel(answer->data(), answer->size()) : refuse(unique, EPROTO);
    slots_.drop(n);
    return answer ? told : Status(tl::unexpected(answer.error()));
}

// When the kernel has its answer, not before: what a slot does not hold no client answers.
Status Client::end_request(uint32_t n, Status answered) {
    slots_.drop(n);
    return answered;
}

Status Client::interrupted(uint64_t unique) {
    for (uint32_t n = 0; n < slots; ++n)
        if (slots_.at(n).state == Slot::taken && slots_.head(n).unique == unique)
            slots_.at(n).signalled = 1;
    return answer_late();
}

// A signal ends a call that has waited for long: its home is away, or slow. What it has done by
// then at home stays done, as with any file server.
Status Client::answer_late() {
    const int64_t now = now_ns();
    for (uint32_t n = 0; n < slots; ++n) {
        Slot& slot = slots_.at(n);
        if (slot.state != Slot::taken || slot.dropped || !slot.signalled) continue;
        locks_.interrupt(n);
        const uint32_t opcode = slots_.head(n).opcode;
        const bool closes = opcode == FUSE_FLUSH || opcode == FUSE_GETLK;
        if (now - slot.since_ns < (closes ? close_late_ns : late_ns)) continue;
        slot.dropped = Slot::ended;  // before: what comes of it later is undone
        TRY(refuse(slots_.head(n).unique, EINTR));
    }
    return {};
}

// ---- from the server

int Client::slot_of(uint64_t seq) {
    for (uint32_t n = 0; n < slots; ++n)
        if (slots_.at(n).state == Slot::taken && slots_.at(n).seq == seq)
            return static_cast<int>(n);
    return -1;
}

// Gives back what the answer to a call has given (a reference, an open file), because the call has
// ended already.
void Client::undo(uint32_t opcode, uint64_t node, ByteView answer) {
    undo(undoing_request(opcode, node, answer));
}

void Client::undo(const Bytes& back) {
    const int n = slots_.find_free();  // none: that is never given back
    if (n >= 0 && !back.empty()) (void)upstream_.ask(static_cast<uint32_t>(n), back);
}

// Handles an answer that the kernel does not take. The kernel keeps each request until it has the
// answer, so ENOENT says that an earlier client gave the answer, and died before it had noted that.
Status Client::not_taken(int code, const fuse_in_header& asked) {
    if (code == EINVAL) return refuse(asked.unique, EIO);  // the server's fault
    if (code == ENODEV) ended_ = true;
    return code == ENODEV || code == ENOENT || code == EINTR
               ? Status{}
               : fail_errno("answer the kernel", code);
}

Status Client::answered(const Talk::Message& message) {
    if (message.head.kind == Kind::recall) {
        Recall recall;
        std::memcpy(&recall, message.body.data(), sizeof recall);
        const ByteView name = message.body.subspan(sizeof recall);
        cache_.recall(recall.directory, std::string(name.begin(), name.end()),
                      message.head.acked == 1);
        return {};
    }
    if (message.head.kind == Kind::content) {
        Content content;
        std::memcpy(&content, message.body.data(), sizeof content);
        contents_.learn(content);
        return {};
    }
    if (message.head.kind == Kind::told) {
        expected_.told(message.body, lease_said(message.head.acked), now_ns());
        return {};
    }
    if (message.head.kind != Kind::answer) return fail("an unexpected message");
    const int found = slot_of(message.head.seq);
    if (found < 0) return {};  // sent again, and answered twice
    const auto n = static_cast<uint32_t>(found);
    if (writes_.took(n, message.body, now_ns())) return {};
    const fuse_in_header asked = slots_.head(n);
    const bool dropped = slots_.at(n).dropped != 0;
    held_.drop(n);
    if (!grants_nothing(asked.opcode) && !dropped) {
        fuse_out_header answer{};
        if (message.body.size() < sizeof answer) return fail("an answer that is too short");
        std::memcpy(&answer, message.body.data(), sizeof answer);
        if (answer.unique != asked.unique || answer.len != message.body.size())
            return fail("an answer to another question");
        cache_.learn({slots_.data(n), slots_.at(n).bytes}, message.body,
                     lease_said(message.head.acked), now_ns());
        unsynced_.answered({slots_.data(n), slots_.at(n).bytes}, message.body, message.head.seq);
        const bool changed = (message.head.acked & file_has_changed) != 0;
        if (locks_.holds(n, message.body, changed)) return {};
        const bool hears =
            slots_.locks_are_homes() && lease_said(message.head.acked) != Lease::program;
        const Bytes other = writes_.as_told(n, message.body, hears);
        const ByteView told = other.empty() ? message.body : ByteView(other);
        if (asked.opcode == FUSE_OPEN && answer.error == 0 && changed) return answer_open(n, told);
        if (::write(options_.fuse, told.data(), told.size()) < 0) {
            TRY(not_taken(errno, asked));
        } else {
            writes_.told(n, other, now_ns());
        }
    }
    if (dropped && asked.opcode == FUSE_GETATTR && asked.unique == 0)  // renew
        cache_.learn({slots_.data(n), slots_.at(n).bytes}, message.body,
                     lease_said(message.head.acked), now_ns());
    const bool was_expected =
        dropped && expected_.took(message.head.seq, {slots_.data(n), slots_.at(n).bytes},
                                  message.body, lease_said(message.head.acked), now_ns());
    const bool is_late = dropped && is_about_lock(asked.opcode) && has_succeeded(message.body);
    const Bytes late = is_late ? letting_go_request({slots_.data(n), slots_.at(n).bytes}) : Bytes();
    slots_.drop(n);
    undo(late);
    if (was_expected) return {};
    if (dropped && contents_.took(message.head.seq, message.body)) return {};
    if (dropped) undo(asked.opcode, asked.nodeid, message.body);
    return {};
}

// Answers the open of a file that has changed. The answer is held until the kernel has forgotten
// what it knows of the file.
Status Client::answer_open(uint32_t n, ByteView answer) {
    if (answer.size() != sizeof(fuse_out_header) + sizeof(fuse_open_out))
        return fail("an answer to an open that is none");
    const uint64_t node = slots_.head(n).nodeid;
    cache_.file_has_changed(node);
    notices_.changed(node);
    held_.hold(n, node, answer, now_ns());
    return {};
}

Status Client::answer_held() {
    return held_.give(
        now_ns(), [this](uint64_t node) { return notices_.is_waited_for(node); },
        [this](uint32_t n, ByteView answer) -> Status {
            const fuse_in_header asked = slots_.head(n);
            const bool dropped = slots_.at(n).dropped != 0;
            if (!dropped && ::write(options_.fuse, answer.data(), answer.size()) < 0)
                TRY(not_taken(errno, asked));
            slots_.drop(n);
            if (dropped) undo(asked.opcode, asked.nodeid, answer);
            return {};
        });
}

// ---- the keeper

// A stream from the keeper, or its end.
Status Client::hear_keeper() {
    char word;
    auto received = receive_descriptors(options_.control, {&word, 1});
    if (received && !*received) return {};
    if (!received || (*received)->bytes == 0 || (*received)->descriptors.empty()) {
        ended_ = true;
        return {};
    }
    if (word == 'c') {
        contents_.connect(std::move((*received)->descriptors[0]));
        return {};
    }
    if (word == 'b') {
        writes_.ask(std::move((*received)->descriptors[0]));
        return {};
    }
    if (word == 'n') writes_.copied(now_ns());
    if (word == 'n' || word == 'o') {
        expected_.begin((*received)->descriptors[0], word == 'o');
        return {};
    }
    expected_.forget();
    cache_.recall(0, {});  // recalls may have been lost with the stream before
    contents_.forget();
    held_.drop_all();
    return upstream_.connect(std::move((*received)->descriptors[0]),
                             {talk_version, options_.uid, options_.gid, 3});
}

// Gives the stream up, and tells the keeper of the mount, which makes another.
void Client::lose_stream(const Error& why) {
    std::fprintf(stderr, "souk-files: %s\n", why.message.c_str());
    upstream_.drop();
    (void)::send(options_.control, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

Status Client::talk(short ready) {
    if (ready != 0)
        TRY(upstream_.receive([this] { contents_.prove(); },
                              [this](const Talk::Message& m) { return answered(m); }));
    return upstream_.send();
}

bool Client::signal_waits() {
    for (uint32_t n = 0; n < slots; ++n) {
        const Slot& slot = slots_.at(n);
        if (slot.state == Slot::taken && slot.signalled && !slot.dropped) return true;
    }
    return false;
}

// Closes files that the cache has kept open at home and nobody wants.
void Client::close_unwanted() {
    uint64_t node = 0;
    for (int n = slots_.find_free(); n >= 0; n = slots_.find_free()) {
        const uint64_t fh = cache_.take_unwanted(node, now_ns());
        if (fh == 0) return;
        (void)upstream_.ask(static_cast<uint32_t>(n), release_request(FUSE_RELEASE, node, fh));
    }
}

Status Client::run() {
    (void)::fcntl(options_.fuse, F_SETFL, O_NONBLOCK);
    TRY(writes_.begin());
    if (slots_.used()) writes_.copied(now_ns());  // a client before may have heard of a dump
    TRY(take_over());
    while (!ended_) {
        expected_.ask(now_ns());
        const bool late = signal_waits(), room = slots_.find_free() >= 0;
        pollfd ready[5] = {
            {room ? options_.fuse : -1, POLLIN, 0},
            {upstream_.fd(), static_cast<short>(POLLIN | (upstream_.wants_to_send() ? POLLOUT : 0)),
             0},
            {options_.control, POLLIN, 0},
            {contents_.fd(), POLLIN, 0},
            {locks_.fd(), POLLIN, 0}};
        const int wait_ms = held_.some() ? HeldAnswers::look_ms
                            : late || init_waits_ >= 0 || contents_.some_wait() ? look_ms
                            : slots_.has_grown()                                ? quiet_ms
                                                                                : -1;
        const int some = ::poll(ready, 5, wait_ms);
        if (some < 0 && errno != EINTR) return fail_errno("poll", errno);
        if (some == 0) slots_.give_back();
        if ((ready[0].revents & POLLERR) != 0) return {};  // the mount has ended
        if (ready[0].revents != 0) TRY(take_requests());
        close_unwanted();
        if (ready[3].revents != 0) contents_.hear();
        if (contents_.some_wait()) contents_.decide(now_ns());
        if (upstream_.connected())
            if (const Status said = talk(ready[1].revents); !said) lose_stream(said.error());
        if (ready[2].revents != 0)
            if (const Status heard = hear_keeper(); !heard) lose_stream(heard.error());
        if (init_waits_ >= 0 && (upstream_.welcomed() || now_ns() - init_since_ns_ > greet_late_ns))
            TRY(answer_init_request());
        if (ready[4].revents != 0)
            TRY(locks_.give([this](ByteView request) { undo(letting_go_request(request)); }));
        if (late) TRY(answer_late());
        TRY(tell_kernel());
        TRY(answer_held());
        contents_.bring();
        writes_.tell(unsynced_.all_synced());
    }
    return {};
}

}  // namespace

Status run_client(const ClientOptions& options) {
    TRY_ASSIGN(Slots all, Slots::open(options.slots));
    return Client(options, std::move(all)).run();
}

}  // namespace souk::files
