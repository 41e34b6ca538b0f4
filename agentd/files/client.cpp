// SPDX-License-Identifier: GPL-2.0-or-later
// Long: one loop, and what it does for each of its three ends.
#include "agentd/files/client.hpp"

#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>

#include "agentd/files/cache.hpp"
#include "agentd/files/local_contents.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/net/descriptors.hpp"

namespace souk::files {
namespace {

constexpr int64_t late_ns = 500'000'000;   // an answer; a signal then ends the call
constexpr int64_t store_ns = 500'000'000;  // a content that is looked for
constexpr int look_ms = 250;               // while a signal waits for that

// Has no answer from the server: nothing of it may be sent twice, or needs to be.
bool grants_nothing(uint32_t opcode) {
    return opcode == FUSE_FORGET || opcode == FUSE_BATCH_FORGET;
}

class Client {
  public:
    explicit Client(const ClientOptions& options, Slots slots)
        : options_(options), slots_(std::move(slots)) {}

    Status run();

  private:
    Status hear_keeper();
    void lose_stream(const Error& why);
    Status talk(short ready);
    bool signal_waits();
    Status greet();
    Status take_requests();
    Status take_request(uint32_t n, size_t bytes);
    void take(uint32_t n);
    bool reads_here(uint32_t n);
    Status read_here(uint32_t n);
    void decide();
    void hear_store();
    void prove();
    void renew(uint64_t node);
    void bring();
    Status interrupted(uint64_t unique);
    Status answer_late();
    Status send_some();
    Status receive_some();
    Status answered(const Talk::Message& message);
    Status not_taken(int code, const fuse_in_header& asked, ByteView answer);
    Status to_kernel(const void* bytes, size_t size);
    Status refuse(uint64_t unique, int error);
    void tell_kernel();
    void close_unwanted();
    void send_own(uint32_t n, const void* request, uint32_t bytes);
    void undo(uint32_t opcode, uint64_t node, ByteView answer);
    void queue(uint32_t n);
    int slot_of(uint64_t seq);
    fuse_in_header head(uint32_t n);

    const ClientOptions& options_;
    Slots slots_;
    Cache cache_;
    LocalContents local_;
    struct Waiting {
        uint32_t slot;
        uint64_t seq, node;
        int64_t until_ns;
    };
    std::vector<Waiting> waiting_;  // reads, until it is known where
    uint64_t bring_seq_ = 0;        // of the request that brings a content on
    Bytes say_;                     // ahead of the next request
    bool can_prove_ = false;
    Talk talk_;
    bool welcomed_ = false, ended_ = false;
    std::deque<uint32_t> to_send_;
    // of the first of them: its head, and how much of head and body has left
    Head sending_;
    size_t sent_ = 0;
    Fd stream_;  // to the server; none while the home is away
};

Lease lease_said(uint64_t said) {
    return said <= static_cast<uint64_t>(Lease::file) ? static_cast<Lease>(said) : Lease::none;
}

int64_t now_ns() { return monotonic_now().ns; }

fuse_in_header Client::head(uint32_t n) {
    fuse_in_header h{};
    std::memcpy(&h, slots_.data(n), sizeof h);
    return h;
}

void Client::queue(uint32_t n) { to_send_.push_back(n); }

Status Client::to_kernel(const void* bytes, size_t size) {
    if (::write(options_.fuse, bytes, size) >= 0) return {};
    // ENOENT: nobody waits for it any more; ENODEV: the mount has ended.
    if (errno == ENOENT || errno == EINTR) return {};
    if (errno == ENODEV) ended_ = true;
    // An answer that the kernel does not take is the server's fault.
    return errno == EINVAL || errno == ENODEV ? Status{} : fail_errno("answer the kernel", errno);
}

// Attributes of files that have changed the kernel forgets now, not when they are a second old.
// Names it keeps for their second: a notice of a name waits for locks, whose holder may wait for
// this process, and FUSE_NOTIFY_INC_EPOCH (6.16) drops the names of open files, which CRIU needs.
void Client::tell_kernel() {
    struct {
        fuse_out_header head{sizeof(fuse_out_header) + sizeof(fuse_notify_inval_inode_out),
                             FUSE_NOTIFY_INVAL_INODE, 0};
        fuse_notify_inval_inode_out of{0, -1, 0};
    } notice;
    for (const uint64_t node : cache_.take_stale()) {
        notice.of.ino = node;
        if (::write(options_.fuse, &notice, sizeof notice) < 0 && errno == ENODEV) ended_ = true;
    }
}

Status Client::refuse(uint64_t unique, int error) {
    fuse_out_header answer{};
    answer.len = sizeof answer;
    answer.error = -error;
    answer.unique = unique;
    return to_kernel(&answer, sizeof answer);
}

Status Client::greet() {
    const Hello hello{talk_version, options_.uid, options_.gid, 1};
    const Head first{sizeof hello, Kind::hello, 0, slots_.acked()};
    iovec parts[2] = {{const_cast<Head*>(&first), sizeof first},
                      {const_cast<Hello*>(&hello), sizeof hello}};
    if (::writev(stream_.get(), parts, 2) != sizeof first + sizeof hello)
        return fail_errno("greet the server of files", errno);
    return {};
}

// ---- from the kernel

Status Client::take_requests() {
    for (int turn = 0; turn < 16; ++turn) {
        const int n = slots_.find_free();
        if (n < 0) return {};
        Slot& slot = slots_.at(static_cast<uint32_t>(n));
        uint8_t* data = slots_.data(static_cast<uint32_t>(n));
        std::memset(data, 0, sizeof(fuse_in_header));
        slot.state = Slot::reading;
        const ssize_t got = ::read(options_.fuse, data, request_bytes_max);
        if (got < 0) {
            slot.state = Slot::free;
            if (errno == EAGAIN || errno == EINTR || errno == ENOENT) return {};
            if (errno == ENODEV) return ended_ = true, Status{};
            return fail_errno("read from /dev/fuse", errno);
        }
        TRY(take_request(static_cast<uint32_t>(n), static_cast<size_t>(got)));
    }
    return {};
}

Status Client::take_request(uint32_t n, size_t bytes) {
    Slot& slot = slots_.at(n);
    const fuse_in_header h = head(n);
    slot.bytes = static_cast<uint32_t>(bytes);
    if (h.opcode == FUSE_INIT) {
        const auto answer = answer_init({slots_.data(n), bytes});
        const Status told =
            answer ? to_kernel(answer->data(), answer->size()) : refuse(h.unique, EPROTO);
        slots_.drop(n);
        return answer ? told : Status(tl::unexpected(answer.error()));
    }
    if (h.opcode == FUSE_INTERRUPT) {
        fuse_interrupt_in in{};
        std::memcpy(&in, slots_.data(n) + sizeof h, sizeof in);
        slots_.drop(n);
        return interrupted(in.unique);
    }
    if (h.opcode == FUSE_DESTROY) {
        slots_.drop(n);
        return refuse(h.unique, 0);
    }
    if (grants_nothing(h.opcode)) {
        if (!cache_.forgotten(slots_.data(n), bytes)) return slots_.drop(n), Status{};
    } else if (h.opcode == FUSE_READ && reads_here(n)) {
        return {};
    } else if (Bytes known; cache_.answer({slots_.data(n), bytes}, now_ns(), known)) {
        slots_.drop(n);
        return to_kernel(known.data(), known.size());
    }
    take(n);
    queue(n);
    return {};
}

void Client::take(uint32_t n) {
    Slot& slot = slots_.at(n);
    slot.seq = slots_.next_seq();
    slot.state = Slot::taken;
    slot.since_ns = now_ns();
}

// ---- contents that this node has

// False: the home is asked.
bool Client::reads_here(uint32_t n) {
    const uint64_t node = head(n).nodeid;
    fuse_read_in in{};
    std::memcpy(&in, slots_.data(n) + sizeof(fuse_in_header), sizeof in);
    const fuse_attr* const attr = cache_.attributes(node, now_ns());
    if (!attr && local_.renews(node, now_ns())) renew(node);
    switch (local_.where(node, attr, in.size)) {
        case LocalContents::Where::home: return false;
        case LocalContents::Where::here:
            take(n);
            if (!read_here(n)) queue(n);
            return true;
        case LocalContents::Where::wait: break;
    }
    take(n);
    waiting_.push_back({n, slots_.at(n).seq, node, now_ns() + store_ns});
    return true;
}

// An error: it is not to be read here.
Status Client::read_here(uint32_t n) {
    static Bytes answer;
    const fuse_in_header h = head(n);
    fuse_read_in in{};
    std::memcpy(&in, slots_.data(n) + sizeof h, sizeof in);
    fuse_out_header out{};
    answer.resize(sizeof out + std::min(in.size, data_bytes_max));
    const ssize_t got = ::pread(local_.file(h.nodeid), answer.data() + sizeof out,
                                answer.size() - sizeof out, static_cast<off_t>(in.offset));
    if (got < 0) return fail_errno("read a content", errno);
    out.len = static_cast<uint32_t>(sizeof out + static_cast<size_t>(got));
    out.unique = h.unique;
    std::memcpy(answer.data(), &out, sizeof out);
    if (!slots_.at(n).dropped) TRY(to_kernel(answer.data(), out.len));
    slots_.drop(n);
    return {};
}

// Reads that have waited for the store.
void Client::decide() {
    const int64_t now = now_ns();
    for (const Waiting& w : std::exchange(waiting_, {})) {
        Slot& slot = slots_.at(w.slot);
        if (slot.state != Slot::taken || slot.seq != w.seq) continue;
        if (slot.dropped) {
            slots_.drop(w.slot);
            continue;
        }
        const auto where = local_.where(w.node, cache_.attributes(w.node, now), 0);
        if (where == LocalContents::Where::here && read_here(w.slot)) continue;
        if (where == LocalContents::Where::wait && now < w.until_ns)
            waiting_.push_back(w);
        else
            queue(w.slot);
    }
}

void Client::hear_store() {
    const bool had = local_.prove().has_value();
    local_.hear();
    if (!had) prove();
    decide();
}

// The server is told by what it shall prove what it has.
void Client::prove() {
    if (!can_prove_ || !welcomed_ || !local_.prove()) return;
    const Head first{sizeof(Prove), Kind::prove, 0, slots_.acked()};
    say_.resize(sizeof first + sizeof(Prove));
    std::memcpy(say_.data(), &first, sizeof first);
    std::memcpy(say_.data() + sizeof first, &*local_.prove(), sizeof(Prove));
}

// The lease of a file that is read has ended: the next read is from here again.
void Client::renew(uint64_t node) {
    const int n = slots_.find_free();
    if (n < 0) return;
    struct {
        fuse_in_header head;
        fuse_getattr_in in;
    } request{};
    request.head.nodeid = node;
    request.head.opcode = FUSE_GETATTR;
    request.head.len = sizeof request;
    send_own(static_cast<uint32_t>(n), &request, sizeof request);
}

// While there is nothing else to send.
void Client::bring() {
    if (!welcomed_ || !stream_ || bring_seq_ != 0 || !to_send_.empty()) return;
    const int n = slots_.find_free();
    Bytes request;
    if (n < 0 || !local_.next_request(request)) return;
    send_own(static_cast<uint32_t>(n), request.data(), static_cast<uint32_t>(request.size()));
    bring_seq_ = slots_.at(static_cast<uint32_t>(n)).seq;
}

Status Client::interrupted(uint64_t unique) {
    for (uint32_t n = 0; n < slots; ++n)
        if (slots_.at(n).state == Slot::taken && head(n).unique == unique)
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
        if (now - slot.since_ns < late_ns) continue;
        TRY(refuse(head(n).unique, EINTR));
        slot.dropped = 1;
    }
    return {};
}

// ---- to the server

Status Client::send_some() {
    while (welcomed_ && sent_ == 0 && !say_.empty()) {
        const ssize_t left =
            ::send(stream_.get(), say_.data(), say_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (left < 0 && (errno == EAGAIN || errno == EINTR)) return {};
        if (left < 0) return fail_errno("send to the home", errno);
        say_.erase(say_.begin(), say_.begin() + left);
    }
    while (welcomed_ && !to_send_.empty()) {
        const uint32_t n = to_send_.front();
        const Slot& slot = slots_.at(n);
        if (sent_ == 0) sending_ = {slot.bytes, Kind::request, slot.seq, slots_.acked()};
        iovec parts[2];
        int count = 0;
        if (sent_ < sizeof sending_)
            parts[count++] = {reinterpret_cast<uint8_t*>(&sending_) + sent_,
                              sizeof sending_ - sent_};
        const size_t body_sent = sent_ > sizeof sending_ ? sent_ - sizeof sending_ : 0;
        parts[count++] = {slots_.data(n) + body_sent, slot.bytes - body_sent};
        msghdr message{};
        message.msg_iov = parts;
        message.msg_iovlen = static_cast<size_t>(count);
        const ssize_t left = ::sendmsg(stream_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (left < 0 && (errno == EAGAIN || errno == EINTR)) return {};
        if (left < 0) return fail_errno("send to the home", errno);
        sent_ += static_cast<size_t>(left);
        if (sent_ < sizeof sending_ + slot.bytes) continue;
        sent_ = 0;
        to_send_.pop_front();
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

// Of a call that has ended already: what its answer gives is given back.
void Client::undo(uint32_t opcode, uint64_t node, ByteView answer) {
    const int n = slots_.find_free();
    const ByteView body = answer.subspan(std::min(answer.size(), sizeof(fuse_out_header)));
    const bool names = opcode == FUSE_LOOKUP || opcode == FUSE_CREATE || opcode == FUSE_MKDIR ||
                       opcode == FUSE_MKNOD || opcode == FUSE_SYMLINK || opcode == FUSE_LINK;
    if (n < 0) return;  // a number of a file that is never given back
    struct {
        fuse_in_header head;
        union {
            fuse_forget_in forget;
            fuse_release_in release;
        };
    } request{};
    request.head.nodeid = node;
    if (names && body.size() >= sizeof(fuse_entry_out)) {
        std::memcpy(&request.head.nodeid, body.data(), sizeof request.head.nodeid);
        if (request.head.nodeid == 0) return;
        request.head.opcode = FUSE_FORGET;
        request.head.len = sizeof request.head + sizeof request.forget;
        request.forget.nlookup = 1;
    } else if ((opcode == FUSE_OPEN || opcode == FUSE_OPENDIR) &&
               body.size() >= sizeof(fuse_open_out)) {
        request.head.opcode = opcode == FUSE_OPEN ? FUSE_RELEASE : FUSE_RELEASEDIR;
        request.head.len = sizeof request.head + sizeof request.release;
        std::memcpy(&request.release.fh, body.data(), sizeof request.release.fh);
    } else {
        return;
    }
    send_own(static_cast<uint32_t>(n), &request, request.head.len);
}

// A request of which the kernel does not know.
void Client::send_own(uint32_t n, const void* request, uint32_t bytes) {
    Slot& slot = slots_.at(n);
    std::memcpy(slots_.data(n), request, bytes);
    slot.bytes = bytes;
    slot.seq = slots_.next_seq();
    slot.state = Slot::taken;
    slot.dropped = 1;
    queue(n);
}

// An answer that the kernel does not take.
Status Client::not_taken(int code, const fuse_in_header& asked, ByteView answer) {
    if (code == EINVAL) return refuse(asked.unique, EIO);  // the server's fault
    if (code == ENODEV) ended_ = true;
    if (code == ENOENT) undo(asked.opcode, asked.nodeid, answer);
    return code == ENODEV || code == ENOENT || code == EINTR
               ? Status{}
               : fail_errno("answer the kernel", code);
}

Status Client::answered(const Talk::Message& message) {
    if (message.head.kind == Kind::welcome) {
        if (welcomed_) return fail("the server greets twice");
        Welcome welcome;
        std::memcpy(&welcome, message.body.data(), sizeof welcome);
        if (welcome.version != talk_version)
            return fail("the home's server of files speaks version " +
                        std::to_string(welcome.version) + ", this node's " +
                        std::to_string(talk_version));
        welcomed_ = true;
        can_prove_ = (welcome.known & 2) != 0;
        prove();
        return {};
    }
    if (message.head.kind == Kind::recall && welcomed_) {
        Recall recall;
        std::memcpy(&recall, message.body.data(), sizeof recall);
        const ByteView name = message.body.subspan(sizeof recall);
        cache_.recall(recall.directory, std::string(name.begin(), name.end()),
                      message.head.acked == 1);
        tell_kernel();
        return {};
    }
    if (message.head.kind == Kind::content && welcomed_) {
        Content content;
        std::memcpy(&content, message.body.data(), sizeof content);
        local_.learn(content);
        return {};
    }
    if (message.head.kind != Kind::answer || !welcomed_) return fail("an unexpected message");
    const int found = slot_of(message.head.seq);
    if (found < 0) return {};  // sent again, and answered twice
    const auto n = static_cast<uint32_t>(found);
    const fuse_in_header asked = head(n);
    const bool dropped = slots_.at(n).dropped != 0;
    if (!grants_nothing(asked.opcode) && !dropped) {
        fuse_out_header answer{};
        if (message.body.size() < sizeof answer) return fail("an answer that is too short");
        std::memcpy(&answer, message.body.data(), sizeof answer);
        if (answer.unique != asked.unique || answer.len != message.body.size())
            return fail("an answer to another question");
        cache_.learn({slots_.data(n), slots_.at(n).bytes}, message.body,
                     lease_said(message.head.acked), now_ns());
        if (::write(options_.fuse, message.body.data(), message.body.size()) < 0) {
            TRY(not_taken(errno, asked, message.body));
        }
    }
    if (dropped && asked.opcode == FUSE_GETATTR && asked.unique == 0)  // renew
        cache_.learn({slots_.data(n), slots_.at(n).bytes}, message.body,
                     lease_said(message.head.acked), now_ns());
    slots_.drop(n);
    if (dropped && message.head.seq == bring_seq_) {
        bring_seq_ = 0;
        local_.answered(message.body);
        return {};
    }
    if (dropped) undo(asked.opcode, asked.nodeid, message.body);
    return {};
}

Status Client::receive_some() {
    for (int turn = 0; turn < 64; ++turn) {
        uint8_t* room = talk_.room();
        const ssize_t got = ::recv(stream_.get(), room, talk_.room_bytes(), MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return {};
        if (got < 0) return fail_errno("receive from the home", errno);
        if (got == 0) return fail("the stream has ended");
        talk_.took(static_cast<size_t>(got));
        TRY_ASSIGN(const auto message, talk_.next());
        if (message) TRY(answered(*message));
    }
    return {};
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
        local_.connect(std::move((*received)->descriptors[0]));
        return {};
    }
    stream_ = std::move((*received)->descriptors[0]);
    cache_.recall(0, {});  // recalls may have been lost with the stream before
    tell_kernel();
    talk_ = Talk();
    welcomed_ = false;
    sent_ = 0;
    say_.clear();
    local_.forget();
    bring_seq_ = 0;
    waiting_.clear();
    // What has no answer, in the order in which it was taken.
    to_send_.clear();
    for (uint32_t n = 0; n < slots; ++n)
        if (slots_.at(n).state == Slot::taken) queue(n);
    std::sort(to_send_.begin(), to_send_.end(),
              [this](uint32_t a, uint32_t b) { return slots_.at(a).seq < slots_.at(b).seq; });
    return greet();
}

// Who keeps the mount makes another.
void Client::lose_stream(const Error& why) {
    std::fprintf(stderr, "souk-files: %s\n", why.message.c_str());
    stream_.reset();
    (void)::send(options_.control, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

Status Client::talk(short ready) {
    if (ready != 0) TRY(receive_some());
    return send_some();
}

bool Client::signal_waits() {
    for (uint32_t n = 0; n < slots; ++n) {
        const Slot& slot = slots_.at(n);
        if (slot.state == Slot::taken && slot.signalled && !slot.dropped) return true;
    }
    return false;
}

// What the cache kept open at home, and nobody wants.
void Client::close_unwanted() {
    uint64_t node = 0;
    for (int n = slots_.find_free(); n >= 0; n = slots_.find_free()) {
        const uint64_t fh = cache_.take_unwanted(node);
        if (fh == 0) return;
        struct {
            fuse_in_header head;
            fuse_release_in release;
        } request{};
        request.head.nodeid = node;
        request.head.opcode = FUSE_RELEASE;
        request.head.len = sizeof request;
        request.release.fh = fh;
        send_own(static_cast<uint32_t>(n), &request, sizeof request);
    }
}

Status Client::run() {
    (void)::fcntl(options_.fuse, F_SETFL, O_NONBLOCK);
    while (!ended_) {
        const bool late = signal_waits(), room = slots_.find_free() >= 0;
        const bool sends = welcomed_ && (!to_send_.empty() || !say_.empty());
        pollfd ready[4] = {{room ? options_.fuse : -1, POLLIN, 0},
                           {stream_.get(), static_cast<short>(POLLIN | (sends ? POLLOUT : 0)), 0},
                           {options_.control, POLLIN, 0},
                           {local_.fd(), POLLIN, 0}};
        if (::poll(ready, 4, late || !waiting_.empty() ? look_ms : -1) < 0 && errno != EINTR)
            return fail_errno("poll", errno);
        if ((ready[0].revents & POLLERR) != 0) return {};  // the mount has ended
        if (ready[0].revents != 0) TRY(take_requests());
        close_unwanted();
        if (ready[3].revents != 0) hear_store();
        if (!waiting_.empty()) decide();
        if (stream_)
            if (const Status said = talk(ready[1].revents); !said) lose_stream(said.error());
        if (ready[2].revents != 0)
            if (const Status heard = hear_keeper(); !heard) lose_stream(heard.error());
        if (late) TRY(answer_late());
        bring();
    }
    return {};
}

}  // namespace

Status run_client(const ClientOptions& options) {
    TRY_ASSIGN(Slots all, Slots::open(options.slots));
    return Client(options, std::move(all)).run();
}

}  // namespace souk::files
