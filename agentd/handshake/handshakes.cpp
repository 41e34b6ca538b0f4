// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/handshake/handshakes.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/net/packets.hpp"
#include "kernel/sys/process/program.hpp"

namespace souk::handshake {
namespace {

constexpr Nanos pause_min = Nanos::from_ms(100), pause_max = Nanos::from_s(5);
constexpr Nanos start_limit = Nanos::from_s(10);
constexpr size_t waiting_max = 8192, kept_bytes_max = 64 * 1024;

// A connection whose handshake is under way over there; then the session that came of it.
class Handed final : public wire::Transport {
  public:
    Handed(Handshakes& handshakes, Shake how) : handshakes_(handshakes), how_(std::move(how)) {}
    ~Handed() override {
        if (number_ != 0) handshakes_.forget(number_);
    }

    bool begin(int socket, const std::function<void(const Status&)>& ready) override {
        ready_ = ready;
        number_ = handshakes_.shake(socket, how_, [this](Result<wire::SessionKeys> keys) {
            number_ = 0;
            const auto told = std::move(ready_);
            told(take(std::move(keys)));  // may end this
        });
        return true;
    }

    Result<ByteView> open(ByteView bytes, Bytes& reply) override {
        if (!session_) return fail("bytes of a TLS session that has not begun");
        return session_->open(bytes, reply);
    }

    Result<Bytes> seal(Bytes&& clear) override {
        if (!session_) {
            if (kept_.size() + clear.size() > kept_bytes_max)
                return fail("too much is said before the TLS handshake is done");
            kept_.insert(kept_.end(), clear.begin(), clear.end());
            return Bytes{};
        }
        if (kept_.empty()) return session_->seal(std::move(clear));
        Bytes all = std::exchange(kept_, {});
        all.insert(all.end(), clear.begin(), clear.end());
        return session_->seal(std::move(all));
    }

    size_t overhead(size_t clear_bytes) const override {
        constexpr size_t a_record = 64;
        return session_ ? session_->overhead(clear_bytes)
                        : kept_.size() + (clear_bytes / 16'384 + 1) * a_record;
    }
    const trust::Peer* peer() const override { return session_ ? session_->peer() : nullptr; }
    const char* awaits() const override {
        return session_ ? Transport::awaits() : "no TLS handshake in time";
    }

  private:
    Status take(Result<wire::SessionKeys> keys) {
        if (!keys) return tl::unexpected(keys.error());
        const trust::Peer& peer = keys->peer;
        if (!how_.name.empty() && peer.full_name() != how_.name)
            return fail("the peer is " + peer.full_name() + ", not " + how_.name);
        if ((peer.subject.roles.bits & how_.roles.bits) == 0)
            return fail("the peer is " + peer.subject.name + " (" +
                        trust::text_of(peer.subject.roles) + "), not " +
                        trust::text_of(how_.roles));
        if (handshakes_.is_revoked(peer.key))
            return fail("the certificate of " + peer.subject.name + " was revoked");
        TRY_ASSIGN(session_, wire::session_transport(std::move(*keys)));
        return {};
    }

    Handshakes& handshakes_;
    const Shake how_;
    uint64_t number_ = 0;
    std::function<void(const Status&)> ready_;
    std::unique_ptr<wire::Transport> session_;
    Bytes kept_;
};

// "KEY NAME", a line each.
std::string lines_of(const std::map<std::string, std::string>& names) {
    std::string lines;
    for (const auto& [key, name] : names) {
        lines += key;
        lines += " " + name + "\n";
    }
    return lines;
}

}  // namespace

Handshakes::Handshakes(Loop& loop, Log& log, Start start, EndProgram end)
    : loop_(loop), log_(log), start_(std::move(start)), end_(std::move(end)), pause_(pause_min) {}
Handshakes::~Handshakes() = default;  // its end of the socket goes, and the process with it

std::unique_ptr<wire::Transport> Handshakes::connector(trust::Roles roles, std::string name) {
    return std::make_unique<Handed>(*this, Shake{0, true, roles, std::move(name)});
}

std::unique_ptr<wire::Transport> Handshakes::acceptor() {
    return std::make_unique<Handed>(*this, Shake{0, false, {0xff}, ""});
}

// -------------------------------------------------------------------------------------------------
// the process

Status Handshakes::renewed(const trust::Identity& identity) {
    const bool first = text_.key.empty();
    TRY_ASSIGN(text_.key, identity.key.pem());
    text_.chain = trust::pem_of(identity.chain);
    text_.root = identity.root.pem();
    text_.revoked = lines_of(identity.revoked.keys);
    revoked_ = identity.revoked;
    if (first) {
        TRY(start());
        return wait_until_taken();
    }
    tell_if_there();
    return {};
}

void Handshakes::know_sites(const std::map<std::string, std::string>& sites) {
    text_.sites = lines_of(sites);
    tell_if_there();
}

// The next one begins with it.
void Handshakes::tell_if_there() {
    if (!socket_) return;
    if (const Status told = tell_identity(); !told) lost(told.error().message);
}

Result<Pidfd> Handshakes::start_souk_handshake(Fd socket) {
    return start_program("souk-handshake", {}, {socket.get()}, false);
}

Status Handshakes::start() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return fail_errno("socketpair", errno);
    Fd own(ends[0]);
    TRY_ASSIGN(process_, start_(Fd(ends[1])));
    socket_ = std::move(own);
    TRY_ASSIGN(watch_, loop_.watch(socket_.get(), POLLIN, [this](short) { hear(); }));
    return tell_identity();
}

Status Handshakes::tell_identity() {
    TRY_ASSIGN(const Fd file, sealed_file("souk-handshake", pack(text_)));
    return send_packet(socket_.get(), pack(Asked(UseIdentity{})), file.get());
}

// Waits until the process has taken its identity. If something keeps it from its work, the start of
// this daemon fails.
Status Handshakes::wait_until_taken() const {
    const auto packet = wait_for_packet(socket_.get(), packet_bytes_max, start_limit);
    if (!packet && packet.error().code == ETIMEDOUT) return fail("souk-handshake does not begin");
    if (!packet) return wrap("souk-handshake ended", packet.error());
    TRY_ASSIGN(const Told told, parse_told(packet->bytes));
    if (const auto* f = std::get_if<Failed>(&told)) return fail("souk-handshake: " + f->why);
    return {};
}

void Handshakes::lost(const std::string& why) {
    log_.limited("handshake", Loop::now(), Level::warning,
                 "what does TLS handshakes ended, and begins anew", {{"WHY", why}});
    watch_.close();
    socket_.reset();
    end_(process_);
    process_ = Pidfd();
    for (const auto& [number, waiting] : waiting_)
        fail_soon(number, Error{0, "the TLS handshake was lost on the way"});
    again_ = loop_.after(pause_, [this] {
        if (const Status started = start(); !started) lost(started.error().message);
    });
    pause_ = std::min(Nanos{pause_.ns * 2}, pause_max);
}

// -------------------------------------------------------------------------------------------------
// questions

uint64_t Handshakes::shake(int socket, const Shake& how, Done done) {
    Shake numbered = how;
    numbered.number = next_;
    return ask(numbered, socket, {std::move(done), nullptr});
}

void Handshakes::examine(const std::string& chain, std::function<void(Result<trust::Peer>)> done) {
    const auto file = sealed_file("souk-handshake", chain);
    (void)ask(Examine{next_}, file ? file->get() : -1, {nullptr, std::move(done)});
}

uint64_t Handshakes::ask(const Asked& asked, int descriptor, Waiting waiting) {
    const uint64_t number = next_++;
    const bool may = socket_ && waiting_.size() < waiting_max;
    waiting_.emplace(number, std::move(waiting));
    const Status sent = may ? send_packet(socket_.get(), pack(asked), descriptor)
                            : Status(fail("TLS handshakes are not done at the moment"));
    if (!sent)
        fail_soon(number, sent.error().code == EAGAIN
                              ? Error{EAGAIN, "too many TLS handshakes at once"}
                              : sent.error());
    return number;
}

void Handshakes::fail_soon(uint64_t number, const Error& why) {
    loop_.defer([this, number, why] { told(Failed{number, why.code, why.message}); });
}

void Handshakes::forget(uint64_t number) {
    if (waiting_.erase(number) > 0 && socket_)
        (void)send_packet(socket_.get(), pack(Asked(Forget{number})));
}

// -------------------------------------------------------------------------------------------------
// answers

void Handshakes::hear() {
    if (const Status heard = hear_some(); !heard) lost(heard.error().message);
}

Status Handshakes::hear_some() {
    constexpr int at_once = 64;  // others have their turn
    for (int i = 0; i < at_once && socket_; ++i) {
        auto packet = receive_packet(socket_.get(), packet_bytes_max);
        if (!packet) return tl::unexpected(packet.error());
        if (!*packet) break;
        TRY_ASSIGN(const Told said, parse_told((*packet)->bytes));
        const auto* f = std::get_if<Failed>(&said);
        if (f && f->number == 0) return fail("it does not take the identity: " + f->why);
        told(said);
    }
    return {};
}

void Handshakes::told(const Told& told) {
    if (std::holds_alternative<Taken>(told)) return;
    const uint64_t number = std::visit(
        [](const auto& word) -> uint64_t {
            if constexpr (requires { word.number; }) return word.number;
            return 0;
        },
        told);
    const auto it = waiting_.find(number);
    if (it == waiting_.end()) return;  // forgotten
    const Waiting waiting = std::move(it->second);
    waiting_.erase(it);
    const auto* const s = std::get_if<Shaken>(&told);
    const auto* const e = std::get_if<Examined>(&told);
    const auto* const f = std::get_if<Failed>(&told);
    const Error why = f ? Error{f->code, f->why} : Error{0, "the answer to another question"};
    if (s) pause_ = pause_min;
    if (waiting.shaken)
        waiting.shaken(s ? Result<wire::SessionKeys>(s->keys) : tl::unexpected(why));
    else
        waiting.examined(e ? Result<trust::Peer>(e->peer) : tl::unexpected(why));
}

}  // namespace souk::handshake
