// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk-exec/wire.hpp"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "kernel/base/cause.hpp"
#include "kernel/sys/host/clock.hpp"

namespace souk::tools {
namespace {

constexpr unsigned char identity[] = "souk-exec";    // the key has no other name
constexpr unsigned char cipher_id[] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256
constexpr const char* cipher_name = "TLS_AES_128_GCM_SHA256";

using Context = std::unique_ptr<SSL_CTX, decltype([](SSL_CTX* c) { SSL_CTX_free(c); })>;

// A session that nobody has had, which stands for the key. Null: there is no memory.
SSL_SESSION* session_of(SSL* ssl) {
    const auto* const key = static_cast<const Sha256::Digest*>(SSL_get_app_data(ssl));
    const SSL_CIPHER* const cipher = SSL_CIPHER_find(ssl, cipher_id);
    SSL_SESSION* const session = SSL_SESSION_new();
    if (session != nullptr && cipher != nullptr &&
        SSL_SESSION_set1_master_key(session, key->data(), key->size()) == 1 &&
        SSL_SESSION_set_cipher(session, cipher) == 1 &&
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
        return session;
    SSL_SESSION_free(session);
    return nullptr;
}

int offer(SSL* ssl, const EVP_MD*, const unsigned char** id, size_t* length,
          SSL_SESSION** session) {
    *id = identity;
    *length = sizeof identity - 1;
    *session = session_of(ssl);
    return *session != nullptr;
}

int find(SSL* ssl, const unsigned char* id, size_t length, SSL_SESSION** session) {
    *session = nullptr;
    if (length == sizeof identity - 1 && std::memcmp(id, identity, length) == 0)
        *session = session_of(ssl);
    return 1;
}

Result<Context> context_for(bool accepts) {
    Context context(SSL_CTX_new(accepts ? TLS_server_method() : TLS_client_method()));
    if (!context || SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(context.get(), cipher_name) != 1 ||
        SSL_CTX_set_num_tickets(context.get(), 0) != 1)
        return fail("this machine has no TLS 1.3");
    SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(context.get(),
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (accepts) {
        SSL_CTX_set_psk_find_session_callback(context.get(), find);
        return context;
    }
    SSL_CTX_set_psk_use_session_callback(context.get(), offer);
    // A peer that shows a certificate in place of the key is nobody.
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
    return context;
}

tl::unexpected<Error> nobody() {
    return fail(CauseCode::not_allowed,
                "the other component has not proven that it knows the secret of this job");
}

// Returns what poll(2) must wait for after a call that has not succeeded; 0: it never will.
short awaited(SSL* ssl, int result) {
    switch (SSL_get_error(ssl, result)) {
        case SSL_ERROR_WANT_READ: return POLLIN;
        case SSL_ERROR_WANT_WRITE: return POLLOUT;
        default: return 0;
    }
}

}  // namespace

void Wire::Free::operator()(ssl_st* ssl) const { SSL_free(ssl); }

Result<Wire> Wire::shake(int fd, const ExecSecret& secret, Nanos limit, bool accepts) {
    const Nanos until = monotonic_now() + limit;
    TRY_ASSIGN(const Context context, context_for(accepts));
    Wire wire(fd);
    const std::string words = "souk-exec over TLS " + secret.text;  // a key for nothing else
    Sha256 key;
    key.update({reinterpret_cast<const uint8_t*>(words.data()), words.size()});
    wire.key_ = std::make_unique<Sha256::Digest>(key.finish());
    wire.ssl_.reset(SSL_new(context.get()));
    SSL* const ssl = wire.ssl_.get();
    if (ssl == nullptr || SSL_set_fd(ssl, fd) != 1 || SSL_set_app_data(ssl, wire.key_.get()) != 1)
        return fail("no memory for a connection");
    if (::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK) != 0)
        return fail_errno("keep a connection from blocking", errno);
    for (;;) {
        ERR_clear_error();
        const int done = accepts ? SSL_accept(ssl) : SSL_connect(ssl);
        if (done == 1) break;
        pollfd polled{fd, awaited(ssl, done), 0};
        const Nanos left = until - monotonic_now();
        if (polled.events == 0 || left.ns <= 0) return nobody();
        (void)::poll(&polled, 1, static_cast<int>(left.ms()) + 1);
    }
    if (SSL_session_reused(ssl) != 1) return nobody();
    return wire;
}

Result<Wire> Wire::connect(int fd, const ExecSecret& secret, Nanos limit) {
    return shake(fd, secret, limit, false);
}
Result<Wire> Wire::accept(int fd, const ExecSecret& secret, Nanos limit) {
    return shake(fd, secret, limit, true);
}

Status Wire::send(std::string_view bytes) {
    unsent_ += bytes;
    return flush();
}

Status Wire::flush() {
    size_t sent = 0;
    while (sent < unsent_.size()) {
        ERR_clear_error();
        const size_t part = std::min<size_t>(unsent_.size() - sent, 1 << 20);
        const int n = SSL_write(ssl_.get(), unsent_.data() + sent, static_cast<int>(part));
        if (n <= 0 && awaited(ssl_.get(), n) == 0) return fail("the connection broke");
        if (n <= 0) break;
        sent += static_cast<size_t>(n);
    }
    unsent_.erase(0, sent);
    return {};
}

Status Wire::drain() {
    for (;;) {
        TRY(flush());
        if (!has_unsent()) return {};
        pollfd polled{fd_, POLLOUT, 0};
        (void)::poll(&polled, 1, -1);
    }
}

short Wire::events(bool reads) const {
    return static_cast<short>((reads ? POLLIN : 0) | (has_unsent() ? POLLOUT : 0));
}

// A record is read whole, and no byte of the next one: what the socket holds then wakes poll(2).
Result<bool> Wire::read(std::string& bytes) {
    char buffer[65'536];
    do {
        ERR_clear_error();
        const int n = SSL_read(ssl_.get(), buffer, sizeof buffer);
        if (n > 0) {
            bytes.append(buffer, static_cast<size_t>(n));
            continue;
        }
        if (awaited(ssl_.get(), n) != 0) return true;
        if (SSL_get_error(ssl_.get(), n) == SSL_ERROR_ZERO_RETURN) return false;
        return fail("the connection broke");
    } while (SSL_pending(ssl_.get()) > 0);
    return true;
}

}  // namespace souk::tools
